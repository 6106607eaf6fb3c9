// Starting kernels, and what becomes of a CUDA call that fails. Read by nvcc and by the host compiler alike.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace sysone {

// How many threads a kernel has.
struct LaunchShape {
  dim3 grid;                // blocks
  dim3 block;               // threads of a block
  size_t shared_bytes = 0;  // of each block's shared memory
};

namespace internal {
// Logs the call, what CUDA says of it, and where, and aborts; unless it is forgiven. For the macros alone.
void CudaCallFailed(const char* file, int line, const char* call, cudaError_t error);
void LibraryCallFailed(const char* file, int line, const char* call, const char* error);
}  // namespace internal

// While one lives, failing calls of its thread do not end the process; the first one is kept here. For a pass that is being
// recorded: nothing of it is done, so nothing is lost if it is done without. One at a time.
class ForgivenCalls {
 public:
  ForgivenCalls();
  ~ForgivenCalls();
  ForgivenCalls(const ForgivenCalls&) = delete;
  ForgivenCalls& operator=(const ForgivenCalls&) = delete;

  // "cudaMemcpyAsync(…): out of memory"; "" when none failed.
  const std::string& first() const { return first_; }

 private:
  friend void internal::LibraryCallFailed(const char*, int, const char*, const char*);
  std::string first_;
};

// SYSONE_CUDA(call): a runtime call that must succeed. Nothing can be done about one that fails in the middle of a pass, and a
// rank that goes on without its result would answer wrongly.
#define SYSONE_CUDA(call)                                                          \
  do {                                                                             \
    if (const cudaError_t sysone_error = (call); sysone_error != cudaSuccess)      \
      ::sysone::internal::CudaCallFailed(__FILE__, __LINE__, #call, sysone_error); \
  } while (false)

// Puts a kernel into a stream. A grid without blocks launches nothing. More than 48 KB of shared memory needs
// cudaFuncAttributeMaxDynamicSharedMemorySize of the kernel to be set before.
template <class... Parameters, class... Arguments>
void Launch(const LaunchShape& shape, cudaStream_t stream, void (*kernel)(Parameters...),
            Arguments... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  SYSONE_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

}  // namespace sysone
