// `sysone preload` and `sysone download-kernels`: what can be made ready on a machine before it serves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/serve_options.h"
#include "router/router.h"

namespace sysone {

// Starts a worker, or a group of them, that loads the model, runs every usual pass, tries algorithms if --preload-autotune asks
// for it, keeps what it chose in a file that later starts find, and ends. The exit status; what was done, or what this machine
// lacks, is in the log on standard error. `args`: behind `sysone preload`.
int Preload(const ServeOptions& options, const std::vector<std::string>& args,
            const ServeEnvironment& environment);

// Prints what the programs in `program_dir` ("": beside this one) have built in; nothing is fetched, as nothing is missing that
// could be. The exit status.
int PrintKernels(const std::string& program_dir);

}  // namespace sysone
