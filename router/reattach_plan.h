// What a router does with the processes that the one before it left: who is supervised on, and who has to go because nobody
// remembers having started it (its router died between the start and the record of it). Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <vector>

#include "router/instance_memory.h"

namespace sysone {

// A living process, and its parent.
struct SeenProcess {
  ProcessIdentity identity;
  pid_t parent = 0;
};

struct ReattachPlan {
  std::vector<bool> keep;  // by record: its process lives
  std::vector<ProcessIdentity> strays;
};

// `orphans`: the children of the keeper, which has those of every dead router, but for the router itself. `registered`: API
// servers and workers in the process table. A process that is neither kept nor started by one that is kept (a rank by its
// mpirun) is a stray.
ReattachPlan PlanReattach(std::span<const ChildRecord> records,
                          const std::function<bool(ProcessIdentity)>& alive,
                          std::span<const SeenProcess> orphans,
                          std::span<const SeenProcess> registered);

}  // namespace sysone
