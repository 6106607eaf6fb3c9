// The least-loaded API server accepts the next connection: all share one listening socket, and each
// asks here whether it is the one. So N keep-alive clients spread evenly, within one of each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "shm_arena/ids.h"
#include "shm_arena/layout.h"
#include "shm_arena/process_table.h"

namespace sysone {

// A ready API server and its load, as the others see it.
struct AcceptCandidate {
  ProcessId id = ProcessId::kNone;
  uint32_t open_connections = 0;
  uint32_t in_flight = 0;
};

// A connection that the one in turn leaves waiting this long may be taken by anyone: it may be
// stuck or dead.
inline constexpr int64_t kAcceptPatienceUs = 10'000;

// The candidate with the fewest open connections; of equals the one with fewer requests in flight,
// then the lowest id. kNone without candidates.
ProcessId LeastLoaded(std::span<const AcceptCandidate> candidates);

// Whether `me` may accept a connection that has been pending for `pending_us`.
bool MayAccept(std::span<const AcceptCandidate> candidates, ProcessId me, int64_t pending_us);

// One per API server. Any thread.
class AcceptTurn {
 public:
  AcceptTurn(ProcessTable processes, AcceptRegion* region, ProcessId me)
      : processes_(processes), region_(region), me_(me) {}

  // Of all ready API servers.
  bool MayAccept(int64_t pending_us);
  // Blocks until some server's connection count changed, or `until_us`. Call with the value of
  // sequence() read before the MayAccept that said no, so that no change is missed.
  uint32_t sequence() const;
  void WaitForChange(uint32_t seen_sequence, int64_t until_us);
  // Count a connection of this server in or out, and tell the others.
  void Opened();
  void Closed();

 private:
  void Changed();
  ProcessTable processes_;
  AcceptRegion* region_;
  ProcessId me_;
};

}  // namespace sysone
