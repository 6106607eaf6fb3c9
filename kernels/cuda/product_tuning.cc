// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product_tuning.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

constexpr int kRuns = 7;  // that are timed, behind one that also loads the kernel

int64_t CacheBytes() {
  int device = 0, bytes = 0;
  SYSONE_CUDA(cudaGetDevice(&device));
  SYSONE_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device));
  return bytes;
}

// Time from one point of a stream to another.
class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {
    SYSONE_CUDA(cudaEventCreate(&begin_));
    SYSONE_CUDA(cudaEventCreate(&end_));
  }
  ~StreamTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  void Begin() { SYSONE_CUDA(cudaEventRecord(begin_, stream_)); }
  // Milliseconds since Begin, when all of it is done.
  float End() {
    float ms = 0;
    SYSONE_CUDA(cudaEventRecord(end_, stream_));
    SYSONE_CUDA(cudaEventSynchronize(end_));
    SYSONE_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return ms;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_{}, end_{};
};

}  // namespace

std::vector<float> TimeCandidates(ProductPlan& plan,
                                  std::span<const cublasLtMatmulAlgo_t> candidates,
                                  const ProductBuffers& buffers, bool add,
                                  const ProductWorkspace& workspace, cudaStream_t stream) {
  const DeviceArray<float> kept(add ? plan.shape().rows * plan.shape().out_cols : 0);
  // Weights come from memory in a pass, not from the cache, where the run before would leave them.
  const DeviceArray<std::byte> emptied(2 * CacheBytes());
  const auto copy = [&](void* to, const void* from) {
    if (kept.count() > 0)
      SYSONE_CUDA(cudaMemcpyAsync(to, from, kept.bytes(), cudaMemcpyDeviceToDevice, stream));
  };
  copy(kept.data(), buffers.out);
  StreamTimer timer(stream);
  std::vector<float> medians;
  for (const auto& candidate : candidates) {
    plan.SetAlgorithm(candidate);
    std::vector<float> times;
    bool runs = true;
    for (int i = 0; i <= kRuns && runs; ++i) {
      SYSONE_CUDA(cudaMemsetAsync(emptied.data(), 0, emptied.bytes(), stream));
      timer.Begin();
      runs = plan.Run(buffers, add, workspace, stream) == CUBLAS_STATUS_SUCCESS;
      const float ms = timer.End();
      if (i > 0) times.push_back(ms);
    }
    std::ranges::sort(times);
    medians.push_back(runs ? times[kRuns / 2] : std::numeric_limits<float>::infinity());
  }
  copy(buffers.out, kept.data());
  SYSONE_CUDA(cudaStreamSynchronize(stream));
  return medians;
}

}  // namespace sysone
