// What a worker computes on, chosen by the program: sysone-worker has CPUs alone (cpu_devices.cc), sysone-worker-cuda GPUs of
// NVIDIA (cuda_devices.cc). The engine is the same in both.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/launch_place.h"
#include "base/serve_options.h"
#include "base/status.h"
#include "kernels/backend.h"
#include "worker/comm/collective.h"

namespace sysone {

// A rank among its group's ranks on this machine.
struct LocalPlace {
  int32_t rank = 0;
  int32_t ranks = 1;
};
// A launcher that does not say so has all ranks here.
LocalPlace LocalPlaceOf(const ServeOptions& options, const LaunchPlace& place);

// The GPU of a rank, one a rank: those of this machine's first group come first. kUnsupported when none of `visible` there are;
// kInvalidArgument when they are fewer than the ranks of all groups of this machine.
Result<int> DeviceOf(const ServeOptions& options, LocalPlace place, int visible);

// As --dtype, --threads and what follows say; device 0.
BackendOptions BackendOptionsOf(const ServeOptions& options);

struct Devices {
  // The rank's backend, on its own device.
  Result<std::unique_ptr<Backend>> (*make_backend)(const ServeOptions& options, LocalPlace place);
  // `ranks`, or a collective made from it that sums Tensors where they lie: between the devices. All ranks call it. `backend`
  // outlives the result.
  Result<std::unique_ptr<Collective>> (*join)(std::unique_ptr<Collective> ranks,
                                              const ServeOptions& options, LocalPlace place,
                                              Backend& backend);
  // What the program has built in, for `sysone download-kernels`: lines of text.
  std::string (*describe_kernels)();
};

// Host memory and threads.
Devices CpuDevices();
// GPUs, one a rank; of the program sysone-worker-cuda alone.
Devices CudaDevices();

}  // namespace sysone
