// Weights on their way from the files to the device: read and encoded by several threads into page-locked memory, a piece at a
// time, while the piece before is being copied.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/objects.h"
#include "kernels/cuda/stream.h"

namespace sysone {

class WeightLoader {
 public:
  WeightLoader(Stream& stream, int threads);
  ~WeightLoader();
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  // Where a matrix goes: device memory, row-major.
  struct Target {
    Encoding encoding;
    int64_t rows, cols;
    int64_t stride;     // values; those behind cols become zeros
    std::byte* values;  // [rows, stride]
    float* scales;      // [rows]; null unless HasScales
  };
  // The copies are in the stream when it returns.
  void Load(const RowReader& reader, const Target& to);

 private:
  struct Piece {
    PinnedArray<std::byte> values;
    PinnedArray<float> scales;
    cudaEvent_t copied = nullptr;
  };
  // Reads and encodes rows [first, first + count).
  void Fill(const RowReader& reader, const Target& to, int64_t first, int64_t count, Piece& piece);

  Stream& stream_;
  ThreadPool pool_;
  std::array<Piece, 2> pieces_;
  size_t next_ = 0;
};

}  // namespace sysone
