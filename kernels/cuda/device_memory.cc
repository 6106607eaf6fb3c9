// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device_memory.h"

#include <cuda_runtime.h>

#include "base/check.h"
#include "kernels/cuda/launch.h"

namespace sysone {

void* AllocateDevice(size_t bytes) {
  void* memory = nullptr;
  if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess) {
    const DeviceMemory now = DeviceMemoryNow();
    SYSONE_CHECK(false, "%zu bytes of the device's memory: %s; %lld of %lld MiB are free", bytes,
                 cudaGetErrorString(error), static_cast<long long>(now.free >> 20),
                 static_cast<long long>(now.total >> 20));
  }
  return memory;
}

void FreeDevice(void* memory) { SYSONE_CUDA(cudaFree(memory)); }

void* AllocatePinned(size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMallocHost(&memory, bytes);
  SYSONE_CHECK(error == cudaSuccess, "%zu bytes of page-locked host memory: %s", bytes,
               cudaGetErrorString(error));
  return memory;
}

void FreePinned(void* memory) { SYSONE_CUDA(cudaFreeHost(memory)); }

DeviceMemory DeviceMemoryNow() {
  size_t free = 0, total = 0;
  SYSONE_CUDA(cudaMemGetInfo(&free, &total));
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

}  // namespace sysone
