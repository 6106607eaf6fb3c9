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

std::string CudaRecordedPasses::Capture(const std::function<void()>& operations,
                                        cudaGraphExec_t* executable) {
  const auto text = [](const char* call, cudaError_t error) {
    cudaGetLastError();  // forgets it
    return Format("%s: %s", call, cudaGetErrorString(error));
  };
  // Only this thread's calls count: others may be loading or answering.
  cudaError_t error = cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return text("cudaStreamBeginCapture", error);
  const ForgivenCalls forgiven;
  stream_.set_recording(true);
  operations();
  stream_.set_recording(false);
  cudaGraph_t graph = nullptr;
  error = cudaStreamEndCapture(stream_.get(), &graph);
  std::string refused = forgiven.first();
  if (refused.empty() && error != cudaSuccess) refused = text("cudaStreamEndCapture", error);
  if (refused.empty()) {
    error = cudaGraphInstantiate(executable, graph, 0);
    if (error != cudaSuccess) refused = text("cudaGraphInstantiate", error);
  }
  if (graph != nullptr) SYSONE_CUDA(cudaGraphDestroy(graph));
  if (!refused.empty()) cudaGetLastError();
  return refused;
}

void CudaRecordedPasses::Record(const PassSize& size, uint64_t memory,
                                const std::function<void()>& operations) {
  if (given_up_) return;
  ClearUnlessOf(memory);
  cudaGraphExec_t executable = nullptr;
  const std::string refused = Capture(operations, &executable);
  if (everyone_(refused.empty()) && refused.empty()) {
    if (kept_.size() >= most_) DropOldest();
    kept_[size] = {executable, ++uses_};
    return;
  }
  if (refused.empty()) SYSONE_CUDA(cudaGraphExecDestroy(executable));
  given_up_ = true;
  SYSONE_WARNING("%s; passes of new sizes are launched operation by operation, which is slower",
                 refused.empty() ? "another rank cannot record its passes" : refused.c_str());
}

void CudaRecordedPasses::DropOldest() {
  const auto oldest =
      std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.last_use; });
  // One that still runs is destroyed when it is done.
  SYSONE_CUDA(cudaGraphExecDestroy(oldest->second.graph));
  kept_.erase(oldest);
}

}  // namespace sysone
