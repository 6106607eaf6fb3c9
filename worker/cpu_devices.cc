// SPDX-License-Identifier: Apache-2.0
#include "worker/devices.h"

namespace sysone {
namespace {

Result<std::unique_ptr<Backend>> MakeCpuBackend(const ServeOptions& options, LocalPlace) {
  return MakeBackend(BackendOptionsOf(options));
}

// Tensors are host memory.
Result<std::unique_ptr<Collective>> StayOnTheHost(std::unique_ptr<Collective> ranks,
                                                  const ServeOptions&, LocalPlace, Backend&) {
  return ranks;
}

}  // namespace

Devices CpuDevices() { return {MakeCpuBackend, StayOnTheHost}; }

}  // namespace sysone
