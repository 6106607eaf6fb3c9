// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/recorded_passes.h"

#include <algorithm>

#include "base/log.h"
#include "kernels/cuda/launch.h"

namespace sysone {

void CudaRecordedPasses::Clear() {
  for (const auto& [size, kept] : kept_) SYSONE_CUDA(cudaGraphExecDestroy(kept.graph));
  kept_.clear();
}

void CudaRecordedPasses::ClearUnlessOf(uint64_t memory) {
  if (memory_ == memory) return;
  Clear();
  memory_ = memory;
}

bool CudaRecordedPasses::Launch(const PassSize& size, uint64_t memory) {
  ClearUnlessOf(memory);
  const auto found = kept_.find(size);
  if (found == kept_.end()) return false;
  found->second.last_use = ++uses_;
  SYSONE_CUDA(cudaGraphLaunch(found->second.graph, stream_.get()));
  return true;
}

void CudaRecordedPasses::Record(const PassSize& size, uint64_t memory,
                                const std::function<void()>& operations) {
  if (given_up_) return;
  ClearUnlessOf(memory);
  // Only this thread's calls count: others may be loading or answering.
  cudaError_t error = cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return GiveUp("cudaStreamBeginCapture", error);
  stream_.set_recording(true);
  operations();
  stream_.set_recording(false);
  cudaGraph_t graph = nullptr;
  error = cudaStreamEndCapture(stream_.get(), &graph);
  if (error != cudaSuccess) return GiveUp("cudaStreamEndCapture", error);
  cudaGraphExec_t executable = nullptr;
  error = cudaGraphInstantiate(&executable, graph, 0);
  SYSONE_CUDA(cudaGraphDestroy(graph));
  if (error != cudaSuccess) return GiveUp("cudaGraphInstantiate", error);
  if (kept_.size() >= most_) DropOldest();
  kept_[size] = {executable, ++uses_};
}

void CudaRecordedPasses::DropOldest() {
  const auto oldest =
      std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.last_use; });
  // One that still runs is destroyed when it is done.
  SYSONE_CUDA(cudaGraphExecDestroy(oldest->second.graph));
  kept_.erase(oldest);
}

void CudaRecordedPasses::GiveUp(const char* what, cudaError_t error) {
  given_up_ = true;
  cudaGetLastError();  // forgets it
  SYSONE_WARNING("%s: %s; passes of new sizes are launched operation by operation, which is slower",
                 what, cudaGetErrorString(error));
}

}  // namespace sysone
