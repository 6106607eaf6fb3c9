// --device: which worker program the router starts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

// The worker for GPUs, in the programs' folder.
inline constexpr char kCudaWorker[] = "/sysone-worker-cuda";

struct DeviceChoice {
  bool on_gpus = false;
  std::string reason;  // for the log; "": no worker runs on this host
};

// Looks at the files that a GPU needs. kNotFound names what is missing for --device cuda, kInvalidArgument a --dtype that the
// device does not have.
Result<DeviceChoice> ChooseDevice(const ServeOptions& options, const std::string& program_dir);

}  // namespace sysone
