// The doorbell of a worker group over the notice board: an API server that has published a job leaves a notice, and wakes the
// worker if that sleeps. A worker sleeps on the arena's futex, which is the fastest to wake, or on its ZeroMQ socket
// (doorbell.h), for comparison and for workers that cannot share a futex with the API servers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"

namespace sysone {

// API-server side. `socket` rings at groups that sleep on their socket. The arena outlives it.
std::unique_ptr<Doorbell> MakeGroupDoorbell(Arena& arena, std::unique_ptr<Doorbell> socket);

// Worker side. Without `socket` it sleeps on the futex. The arena outlives it. Wait returns slots in no particular order.
std::unique_ptr<DoorbellListener> MakeGroupListener(Arena& arena, GroupId group,
                                                    std::unique_ptr<DoorbellListener> socket);

}  // namespace sysone
