// What becomes of a CUDA call that fails.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.h"

#include "base/check.h"

namespace sysone::internal {

void CudaCallFailed(const char* file, int line, const char* call, cudaError_t error) {
  CheckFailed(file, line, call, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
}

}  // namespace sysone::internal
