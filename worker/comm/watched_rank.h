// A rank alone with a device. There is no other rank to lose patience with it, and its thread waits for the device for ever, so a
// step that never ends would keep its jobs for ever; its heart, a thread of its own, goes on beating.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "worker/comm/collective.h"

namespace sysone {

// As `alone`, which has one rank, but with an eye on its steps: one that takes longer than `stuck_after_us` is named in the log and
// ends the process, and the router starts another one for its jobs.
std::unique_ptr<Collective> WatchRank(std::unique_ptr<Collective> alone, int64_t stuck_after_us);

}  // namespace sysone
