// A collective for ranks on several machines: every operation is an exchange of messages through MPI.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "worker/comm/collective.h"

namespace sysone {

// After MPI_Init, once a process. A rank that keeps the others waiting for longer than `stuck_after_us` within a pass is named in
// the log, with what was last heard of it, and the process that waits aborts. Nobody loses patience while rank 0 has no message,
// nor before its first one, since ranks may take long to load.
std::unique_ptr<Collective> MakeMpiCollective(int32_t rank, int32_t size, int64_t stuck_after_us);

}  // namespace sysone
