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
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/stream.h"

namespace sysone {

// Two passes with the same size launch the same grids over the same memory.
struct PassSize {
  int32_t rows = 0, reads = 0;
  int32_t runs = 0, spans = 0;  // that there is room for
  bool chunks = false;          // AttentionLimits::chunks of all rows or of those read
  int32_t labels = 0;
  int64_t state_floats = 0;  // of all reads, that go to the host
  auto operator<=>(const PassSize&) const = default;
};

// Those of one model. Used by the backend's thread; the stream outlives it.
class CudaRecordedPasses final : public RecordedPasses {
 public:
  // Recorded passes take memory of the device, a fraction of a MiB each; the one unused for longest goes when there is another.
  static constexpr size_t kMost = 96;

  // `everyone`: as of Backend::NewRecordedPasses.
  CudaRecordedPasses(Stream& stream, std::function<bool(bool)> everyone, size_t most = kMost)
      : stream_(stream), everyone_(std::move(everyone)), most_(most) {}
  ~CudaRecordedPasses() override { Clear(); }
  CudaRecordedPasses(const CudaRecordedPasses&) = delete;
  CudaRecordedPasses& operator=(const CudaRecordedPasses&) = delete;

  // `memory`: number of the memory that passes share; another one whenever some of it moved, and then all is forgotten.
  // False if there is none of that size.
  bool Launch(const PassSize& size, uint64_t memory);
  // Records what `operations` puts into the stream; nothing of it is done. Where the device or the driver refuses, or a call
  // among the operations fails, here or on another rank, this says so in the log, once, and records nothing any more.
  void Record(const PassSize& size, uint64_t memory, const std::function<void()>& operations);

  size_t count() const { return kept_.size(); }

 private:
  struct Kept {
    cudaGraphExec_t graph = nullptr;
    uint64_t last_use = 0;
  };
  // Why there is none, "" if there is.
  std::string Capture(const std::function<void()>& operations, cudaGraphExec_t* executable);
  void Clear();
  void ClearUnlessOf(uint64_t memory);
  void DropOldest();

  Stream& stream_;
  const std::function<bool(bool)> everyone_;
  const size_t most_;
  std::map<PassSize, Kept> kept_;
  uint64_t memory_ = 0;
  uint64_t uses_ = 0;
  bool given_up_ = false;
};

}  // namespace sysone
