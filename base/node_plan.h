// What one of several machines has to do when the same `sysone serve` is started on each: node 0 serves the clients, the others
// lend it their worker groups. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/launch_place.h"
#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

// The flags that a launcher's word is worth, to stand before the user's own so that those win: --nnodes, --node-rank and
// --master-addr when it started one process on each of several machines, else none.
std::vector<std::string> NodeFlags(const LaunchPlace& place);

// With --nnodes above 1: shares --data-parallel-size out among the nodes unless --data-parallel-size-local says how many there are
// here, lets node 0 wait for the others at --master-port, and makes the others --headless.
Status PlanNodes(ServeOptions& options);

}  // namespace sysone
