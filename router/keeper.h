// The process that the user started. It does nothing but keep a router running: it holds what must outlive one (the listening
// socket, the arena's name and lock, the run folder, the instance's memory), starts the router as a forked child that inherits
// all of it, passes stop signals on, and starts another when one dies or is stuck. Should the keeper itself be killed, the router takes its
// place: it stops supervising, becomes the keeper and starts a router. So whichever of the two dies, the other puts it back, and
// a new router always finds the same: the children of a dead one, to be supervised on (reattach_plan.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

#include "router/child_life.h"
#include "router/instance_memory.h"
#include "router/signals.h"
#include "shm_arena/arena.h"

namespace sysone {

// A router that crashes before it ever supervised anything is tried three times; afterwards for ever, since the children serve
// on without it.
inline constexpr RestartPolicy kRouterRestarts = {
    .first_delay_us = 10'000, .longest_delay_us = 5'000'000, .forgive_us = 5'000'000};

class Keeper {
 public:
  // All outlive this object. The arena is not registered. A router that gives no heartbeat for `stuck_us` is killed.
  Keeper(Arena& arena, InstanceMemory& memory, SignalSource& signals, int64_t stuck_us)
      : arena_(arena), memory_(memory), signals_(signals), stuck_us_(stuck_us) {}

  // The router's work, in its own process: returns the exit status, or nothing when process `keeper` is no longer its parent.
  using Route = std::function<std::optional<int>(pid_t keeper)>;

  // Returns the exit status of the router that ended by itself, in the process that is the keeper then.
  int Run(const Route& route);

 private:
  // The wait status of the router, once it has ended.
  int Watch(pid_t router);
  void KillIfStuck(pid_t router) const;
  void OnDeath(pid_t router, int wait_status);
  // Until it is time for the next router, or a request to stop comes, which only a router can obey.
  void WaitForTurn();
  int GiveUp();
  void TakeStopRequests();
  void BecomeRouter();
  void BecomeKeeper();

  Arena& arena_;
  InstanceMemory& memory_;
  SignalSource& signals_;
  const int64_t stuck_us_;
  ChildLife router_life_{kRouterRestarts};
  int asked_ = 0;            // to stop
  int stopping_deaths_ = 0;  // of routers that were asked to
};

// Ends all processes that are registered in the arena, except this one: SIGTERM, and SIGKILL after the lease within which they
// end without a router. kCancelled when a stop signal came meanwhile, kUnavailable when some do not end.
Status EndEverybody(const Arena& arena, SignalSource& signals);

}  // namespace sysone
