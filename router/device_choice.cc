// SPDX-License-Identifier: Apache-2.0
#include "router/device_choice.h"

#include <unistd.h>

#include "base/log.h"

namespace sysone {
namespace {

// What --device cuda lacks here, "" for nothing. A driver without devices, or a device that is not to be seen, only the worker
// can tell.
std::string MissingForGpus(const ServeOptions& options, const std::string& program_dir) {
  const std::string program = program_dir + kCudaWorker;
  if (access(program.c_str(), X_OK) != 0)
    return program + " is not there (it is built where CMake finds nvcc)";
  if (access(options.device_file.c_str(), F_OK) != 0)
    return options.device_file +
           " is not there (no driver of NVIDIA GPUs, or a container that was "
           "given no GPU)";
  return "";
}

}  // namespace

Result<DeviceChoice> ChooseDevice(const ServeOptions& options, const std::string& program_dir) {
  if (LocalGroups(options) == 0) return DeviceChoice{};
  if (options.device == "cpu") return DeviceChoice{false, "device: cpu, as asked"};
  const std::string missing = MissingForGpus(options, program_dir);
  if (options.device == "cuda") {
    if (missing.empty()) return DeviceChoice{true, "device: cuda, as asked"};
    return Error(Code::kNotFound, "--device cuda: %s; --device cpu serves without a GPU",
                 missing.c_str());
  }
  if (missing.empty()) return DeviceChoice{true, "device: cuda"};
  if (options.dtype == "fp8")
    return Error(Code::kInvalidArgument,
                 "--dtype fp8 is for GPUs, and this machine serves on its CPU: %s",
                 missing.c_str());
  return DeviceChoice{false, "device: cpu, as " + missing};
}

}  // namespace sysone
