// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"

#include <cuda_runtime.h>

#include "base/log.h"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

// The oldest with bfloat16 products, which all kernels are built for.
constexpr int kLeastMajor = 8;

Status Unavailable(const char* what, cudaError_t error) {
  cudaGetLastError();  // forgets it
  return Error(Code::kUnavailable, "%s: %s (%s)", what, cudaGetErrorString(error),
               cudaGetErrorName(error));
}

}  // namespace

Result<CudaDevice> TakeCudaDevice(int ordinal) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return Unavailable("no CUDA device", error);
  if (ordinal < 0 || ordinal >= count)
    return Error(Code::kInvalidArgument,
                 "CUDA device %d is asked for, and this process sees %d; see CUDA_VISIBLE_DEVICES",
                 ordinal, count);
  CudaDevice device;
  device.ordinal = ordinal;
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal); error != cudaSuccess)
    return Unavailable("properties of the CUDA device", error);
  device.name = properties.name;
  device.major = properties.major;
  device.minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  if (device.major < kLeastMajor)
    return Error(Code::kUnsupported,
                 "%s has compute capability %d.%d; 8.0 or later (Ampere) is needed",
                 device.name.c_str(), device.major, device.minor);
  // A device that another process has for itself, or that is broken, refuses here.
  cudaError_t error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) error = cudaFree(nullptr);
  if (error != cudaSuccess)
    return Unavailable(Format("CUDA device %d (%s)", ordinal, device.name.c_str()).c_str(), error);
  SYSONE_CUDA(cudaDriverGetVersion(&device.driver));
  device.at_start = DeviceMemoryNow();
  return device;
}

std::string Describe(const CudaDevice& device) {
  return Format("%s (compute capability %d.%d, %.1f GiB, %.1f free, driver %s)",
                device.name.c_str(), device.major, device.minor,
                static_cast<double>(device.at_start.total) * 0x1p-30,
                static_cast<double>(device.at_start.free) * 0x1p-30, DriverVersion(device).c_str());
}

std::string DriverVersion(const CudaDevice& device) {
  return Format("%d.%d", device.driver / 1000, device.driver % 1000 / 10);
}

}  // namespace sysone
