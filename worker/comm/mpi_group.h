// Joining the ranks that a launcher (mpirun, srun) started together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "worker/comm/collective.h"

namespace sysone {

struct JoinOptions {
  // Ranks that are all on one machine work through shared memory. false, or ranks that do not see each other's: through MPI.
  bool share_memory = true;
  int64_t stuck_after_us = 60'000'000;  // as of SharedCollectiveOptions and MakeMpiCollective
};

// Waits until all ranks have come; once a process, from the thread that will use the result. An MPI library that fails ends the
// process. Collective::Finish leaves the group in good order; a process that ends without it ends the group.
std::unique_ptr<Collective> JoinMpiGroup(const JoinOptions& options);

}  // namespace sysone
