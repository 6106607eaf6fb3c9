// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/built_in.h"

#include <cuda_runtime.h>

#include "base/log.h"
#include "kernels/cuda/matmul.h"

namespace sysone {
namespace {

std::string VersionText(int version) {
  return version == 0 ? "none" : Format("%d.%d", version / 1000, version % 1000 / 10);
}

}  // namespace

std::string DescribeCudaKernels() {
  int runtime = 0, driver = 0;
  // 0 without a driver, which is no fault here.
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const size_t cublaslt = CudaMatMul::LibraryVersion();
  return Format(
      "GPUs: kernels of embedding, norms, rotation, attention, gates and read-out for %s.\n"
      "  CUDA runtime %s (built in), cuBLASLt %zu.%zu.%zu (matrix products; its kernels are in the "
      "library), driver: %s\n",
      SYSONE_CUDA_MADE_FOR, VersionText(runtime).c_str(), cublaslt / 10000, cublaslt / 100 % 100,
      cublaslt % 100, VersionText(driver).c_str());
}

}  // namespace sysone
