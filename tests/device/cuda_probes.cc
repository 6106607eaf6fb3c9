// SPDX-License-Identifier: Apache-2.0
#include "tests/device/cuda_probes.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "base/check.h"
#include "kernels/bfloat16.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

#define SYSONE_CUBLAS(call) SYSONE_CHECK((call) == CUBLAS_STATUS_SUCCESS, "%s failed", #call)

constexpr int kRounds = 10;

// Seconds of one call, the mean of kRounds behind some that warm up.
double Seconds(cudaStream_t stream, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  cudaEvent_t begin = nullptr, end = nullptr;
  SYSONE_CUDA(cudaEventCreate(&begin));
  SYSONE_CUDA(cudaEventCreate(&end));
  SYSONE_CUDA(cudaEventRecord(begin, stream));
  for (int i = 0; i < kRounds; ++i) call();
  SYSONE_CUDA(cudaEventRecord(end, stream));
  SYSONE_CUDA(cudaEventSynchronize(end));
  float milliseconds = 0;
  SYSONE_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
  SYSONE_CUDA(cudaEventDestroy(begin));
  SYSONE_CUDA(cudaEventDestroy(end));
  return static_cast<double>(milliseconds) / 1e3 / kRounds;
}

}  // namespace

double CopyBandwidth() {
  const int64_t bytes = std::min<int64_t>(int64_t{4} << 30, DeviceMemoryNow().free / 4);
  const DeviceArray<std::byte> from(bytes), to(bytes);
  SYSONE_CUDA(cudaMemset(from.data(), 1, from.bytes()));
  cudaStream_t stream = nullptr;
  SYSONE_CUDA(cudaStreamCreate(&stream));
  const double seconds = Seconds(stream, [&] {
    SYSONE_CUDA(
        cudaMemcpyAsync(to.data(), from.data(), from.bytes(), cudaMemcpyDeviceToDevice, stream));
  });
  SYSONE_CUDA(cudaStreamDestroy(stream));
  return 2 * static_cast<double>(bytes) / seconds;
}

double ProductRate() {
  constexpr int64_t kSize = 8192, kDistinct = 1000003;
  constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(static_cast<size_t>(kSize * kSize));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i < kDistinct ? ToBfloat16(normal(random)) : values[i - kDistinct];
  const DeviceArray<uint16_t> a(kSize * kSize), b(kSize * kSize);
  const DeviceArray<float> d(kSize * kSize);
  const DeviceArray<std::byte> workspace(int64_t{kWorkspaceBytes});
  for (const auto* matrix : {&a, &b})
    SYSONE_CUDA(cudaMemcpy(matrix->data(), values.data(), matrix->bytes(), cudaMemcpyHostToDevice));

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t in = nullptr, out = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  SYSONE_CUBLAS(cublasLtCreate(&handle));
  SYSONE_CUBLAS(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  SYSONE_CUBLAS(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                               sizeof transposed));
  SYSONE_CUBLAS(cublasLtMatrixLayoutCreate(&in, CUDA_R_16BF, kSize, kSize, kSize));
  SYSONE_CUBLAS(cublasLtMatrixLayoutCreate(&out, CUDA_R_32F, kSize, kSize, kSize));
  SYSONE_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  SYSONE_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference,
                                                     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &kWorkspaceBytes, sizeof kWorkspaceBytes));
  cublasLtMatmulHeuristicResult_t best = {};
  int found = 0;
  SYSONE_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle, operation, in, in, out, out, preference, 1,
                                               &best, &found));
  SYSONE_CHECK(found == 1, "cuBLASLt knows no algorithm");
  cudaStream_t stream = nullptr;
  SYSONE_CUDA(cudaStreamCreate(&stream));
  const float one = 1, zero = 0;
  const double seconds = Seconds(stream, [&] {
    SYSONE_CUBLAS(cublasLtMatmul(handle, operation, &one, a.data(), in, b.data(), in, &zero,
                                 d.data(), out, d.data(), out, &best.algo, workspace.data(),
                                 kWorkspaceBytes, stream));
  });
  SYSONE_CUDA(cudaStreamDestroy(stream));
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(in);
  cublasLtMatrixLayoutDestroy(out);
  cublasLtMatmulDescDestroy(operation);
  cublasLtDestroy(handle);
  return 2.0 * kSize * kSize * kSize / seconds;
}

}  // namespace sysone
