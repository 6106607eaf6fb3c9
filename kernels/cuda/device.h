// The device that a backend works on: found, checked and taken.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "kernels/cuda/device_memory.h"

namespace sysone {

struct CudaDevice {
  int ordinal = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int driver = 0;         // version it supports: 13000 is 13.0
  DeviceMemory at_start;  // right after the device was taken
};

// Makes it the calling thread's device; all that is made later belongs to it. kUnavailable: there is no device, or it is taken;
// kInvalidArgument: fewer than `ordinal` + 1; kUnsupported: older than compute capability 8.0.
Result<CudaDevice> TakeCudaDevice(int ordinal);

// "NVIDIA H200 (compute capability 9.0, 140.4 GiB, 139.8 free, driver 13.0)"
std::string Describe(const CudaDevice& device);
// "13.0": the newest CUDA that the driver knows.
std::string DriverVersion(const CudaDevice& device);

}  // namespace sysone
