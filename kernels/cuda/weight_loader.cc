// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/weight_loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight_encoding.h"

namespace sysone {
namespace {

// Long enough for the full speed of a copy, short enough that there is always one to overlap with.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
// What a thread reads at a time: its floats stay in the cache until they are encoded.
constexpr int64_t kSliceFloats = int64_t{1} << 16;

template <class Array>
void GrowTo(Array& array, int64_t count) {
  if (array.count() < count) array = Array(count);
}

}  // namespace

WeightLoader::WeightLoader(Stream& stream, int threads) : stream_(stream), pool_(threads) {
  for (Piece& piece : pieces_)
    SYSONE_CUDA(
        cudaEventCreateWithFlags(&piece.copied, cudaEventDisableTiming | cudaEventBlockingSync));
}

WeightLoader::~WeightLoader() {
  for (Piece& piece : pieces_) {
    SYSONE_CUDA(cudaEventSynchronize(piece.copied));
    SYSONE_CUDA(cudaEventDestroy(piece.copied));
  }
}

void WeightLoader::Load(const RowReader& reader, const Target& to) {
  const int64_t row_bytes = to.stride * BytesOf(to.encoding);
  const int64_t piece_rows = std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t first = 0; first < to.rows; first += piece_rows) {
    const int64_t count = std::min(piece_rows, to.rows - first);
    Piece& piece = pieces_[std::exchange(next_, 1 - next_)];
    SYSONE_CUDA(cudaEventSynchronize(piece.copied));
    GrowTo(piece.values, count * row_bytes);
    GrowTo(piece.scales, count);
    Fill(reader, to, first, count, piece);
    SYSONE_CUDA(cudaMemcpyAsync(to.values + first * row_bytes, piece.values.data(),
                                static_cast<size_t>(count * row_bytes), cudaMemcpyHostToDevice,
                                stream_.get()));
    if (to.scales)
      SYSONE_CUDA(cudaMemcpyAsync(to.scales + first, piece.scales.data(),
                                  static_cast<size_t>(count) * sizeof(float),
                                  cudaMemcpyHostToDevice, stream_.get()));
    SYSONE_CUDA(cudaEventRecord(piece.copied, stream_.get()));
  }
}

void WeightLoader::Fill(const RowReader& reader, const Target& to, int64_t first, int64_t count,
                        Piece& piece) {
  const int64_t row_bytes = to.stride * BytesOf(to.encoding);
  const int64_t slice_rows = std::max<int64_t>(1, kSliceFloats / to.cols);
  pool_.ParallelFor((count + slice_rows - 1) / slice_rows, [&](int64_t slice, int) {
    const int64_t begin = slice * slice_rows, rows = std::min(slice_rows, count - begin);
    std::vector<float> values(static_cast<size_t>(rows * to.cols));
    reader(first + begin, rows, values.data());
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const float> row(values.data() + r * to.cols, static_cast<size_t>(to.cols));
      piece.scales.data()[begin + r] = EncodeWeightRow(
          to.encoding, row, to.stride, piece.values.data() + (begin + r) * row_bytes);
    }
  });
}

}  // namespace sysone
