// The programs sysone-worker and sysone-worker-cuda, but for the devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "worker/devices.h"

namespace sysone {

// From the command line to the exit status; `--print-kernels` alone prints what is built in. `variable` reads the environment, for ResolveLaunchPlace.
int WorkerProgram(const char* program, int argc, char** argv,
                  const std::function<const char*(const char*)>& variable, const Devices& devices);

}  // namespace sysone
