// The HTTP server's gate over the arena's accept turn: of all API servers of the instance, the one with the fewest open
// connections takes the next.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api_server/connection_gate.h"
#include "base/clock.h"
#include "shm_arena/accept_turn.h"
#include "shm_arena/arena.h"

namespace sysone {

class AcceptGate final : public ConnectionGate {
 public:
  explicit AcceptGate(Arena& arena)
      : lease_(arena.lease()), turn_(arena.processes(), arena.accept_region(), arena.self()) {}

  bool MyTurn() override {
    // Read before the decision, so that a change in between ends the wait at once.
    seen_ = turn_.sequence();
    return turn_.MayAccept(0);
  }
  void WaitForChange(int64_t timeout_us) override {
    turn_.WaitForChange(seen_, MonotonicUs() + timeout_us);
  }
  void Opened() override { turn_.Opened(); }
  void Closed() override { turn_.Closed(); }
  void Begun() override { lease_.AddInFlight(1); }
  void Answered() override { lease_.AddInFlight(-1); }

 private:
  ProcessLease& lease_;
  AcceptTurn turn_;
  uint32_t seen_ = 0;
};

}  // namespace sysone
