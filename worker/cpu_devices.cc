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

std::string CpuKernels() {
  std::string names;
  for (const std::string& name : BackendNames()) names += (names.empty() ? "" : ", ") + name;
  std::string text = "CPUs: backends " + names + ".";
  if (const auto backend = MakeBackend({}); backend.ok())
    text += " Here --dtype auto takes: " + (*backend)->Describe();
  return text + "\n";
}

}  // namespace

Devices CpuDevices() { return {MakeCpuBackend, StayOnTheHost, CpuKernels}; }

}  // namespace sysone
