// Passes as CUDA graphs: what one pass put into the stream, its inputs' copy included, is put there again with one call. That is
// right because everything that differs between two passes of a size is in the inputs' page-locked memory, which stays where it
// is (kernels/cuda/pass_inputs.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "kernels/backend.h"
#include "kernels/cuda/stream.h"

namespace sysone {

// Two passes with the same size launch the same grids over the same memory.
struct PassSize {
  int32_t rows = 0, reads = 0;
  int32_t runs = 0, spans = 0;  // that there is room for
  bool chunks = false;          // AttentionLimits::chunks of all rows or of those read
  auto operator<=>(const PassSize&) const = default;
};

// Those of one model. Used by the backend's thread; the stream outlives it.
class CudaRecordedPasses final : public RecordedPasses {
 public:
  // Recorded passes take memory of the device, a fraction of a MiB each; the one unused for longest goes when there is another.
  static constexpr size_t kMost = 96;

  explicit CudaRecordedPasses(Stream& stream, size_t most = kMost) : stream_(stream), most_(most) {}
  ~CudaRecordedPasses() override { Clear(); }
  CudaRecordedPasses(const CudaRecordedPasses&) = delete;
  CudaRecordedPasses& operator=(const CudaRecordedPasses&) = delete;

  // `memory`: number of the memory that passes share; another one whenever some of it moved, and then all is forgotten.
  // False if there is none of that size.
  bool Launch(const PassSize& size, uint64_t memory);
  // Records what `operations` puts into the stream; nothing of it is done. Where the device or the driver refuses, this says so
  // in the log, once, and records nothing any more.
  void Record(const PassSize& size, uint64_t memory, const std::function<void()>& operations);

  size_t count() const { return kept_.size(); }

 private:
  struct Kept {
    cudaGraphExec_t graph = nullptr;
    uint64_t last_use = 0;
  };
  void Clear();
  void ClearUnlessOf(uint64_t memory);
  void DropOldest();
  void GiveUp(const char* what, cudaError_t error);

  Stream& stream_;
  const size_t most_;
  std::map<PassSize, Kept> kept_;
  uint64_t memory_ = 0;
  uint64_t uses_ = 0;
  bool given_up_ = false;
};

}  // namespace sysone
