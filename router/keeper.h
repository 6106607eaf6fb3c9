// The process that the user started. It does nothing but keep a router running: it holds what must outlive one (the listening
// socket, the arena's name and lock, the run folder, the instance's memory), starts the router as a forked child that inherits
// all of it, passes stop signals on, and starts another when one dies. Should the keeper itself be killed, the router takes its
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
// on without it: the longest delay leaves them half of kRouterLeaseUs.
inline constexpr RestartPolicy kRouterRestarts = {
    .first_delay_us = 10'000, .longest_delay_us = 5'000'000, .forgive_us = 5'000'000};

class Keeper {
 public:
  // All outlive this object. The arena is not registered.
  Keeper(Arena& arena, InstanceMemory& memory, SignalSource& signals)
      : arena_(arena), memory_(memory), signals_(signals) {}

  // The router's work, in its own process: returns the exit status, or nothing when process `keeper` is no longer its parent.
  using Route = std::function<std::optional<int>(pid_t keeper)>;

  // Returns the exit status of the router that ended by itself, in the process that is the keeper then.
  int Run(const Route& route);

 private:
  // False: too many died.
  bool WaitForTurn();
  // The wait status of the router, once it has ended.
  int Watch(pid_t router);
  void TakeStopRequests();
  void BecomeRouter();
  void BecomeKeeper();

  Arena& arena_;
  InstanceMemory& memory_;
  SignalSource& signals_;
  ChildLife router_life_{kRouterRestarts};
  int asked_ = 0;  // to stop
};

// Ends all processes that are registered in the arena, except this one: SIGTERM, and SIGKILL after the lease within which they
// end without a router. kCancelled when a stop signal came meanwhile, kUnavailable when some do not end.
Status EndEverybody(const Arena& arena, SignalSource& signals);

}  // namespace sysone
