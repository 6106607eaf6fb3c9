// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.h"

#include <algorithm>

namespace sysone {
namespace {

// Rows of k and v that one thread copies at a time.
constexpr int64_t kStorePiece = 16;

// Columns of a head are padded with zeros to whole panels, the widest that any target has.
constexpr int64_t kColUnit = 32;

// Query rows of a tile: a whole number of register tiles in both products, and few enough that the tile's queries, scores and
// sums stay in the first two levels of cache.
int32_t TileRows(const AttentionShape& shape) {
  return std::max(1, 48 * shape.kv_heads / shape.heads);
}

}  // namespace

CpuKvStore::CpuKvStore(int64_t row_count, const AttentionShape& shape)
    : rows(row_count),
      kv_heads(shape.kv_heads),
      head_dim(shape.head_dim),
      slices(RoundUp(shape.head_dim, kColUnit) / kValueCols),
      keys(shape.kv_heads * row_count, shape.head_dim),
      value_stride(RowStride<float>(row_count * kValueCols)),
      values(static_cast<size_t>(shape.kv_heads * slices * value_stride) * sizeof(float)) {}

int64_t CpuKvStore::RowBytes(const AttentionShape& shape) {
  return shape.kv_heads * (RowStride<float>(shape.head_dim) + RoundUp(shape.head_dim, kColUnit)) *
         static_cast<int64_t>(sizeof(float));
}

CpuAttention::CpuAttention(int64_t targets, ThreadPool& pool)
    : kernels_(GetAttentionKernels(targets)), pool_(pool) {
  for (int t = 0; t < pool.threads(); ++t) scratch_.emplace_back(kAttentionScratch * sizeof(float));
}

void CpuAttention::StoreKv(const Rows<float>& qkv, const AttentionShape& shape,
                           const PassPlan& plan, CpuKvStore& store) {
  SYSONE_CHECK(qkv.cols == shape.qkv_cols() && plan.rows() <= qkv.rows &&
                   store.kv_heads == shape.kv_heads && store.head_dim == shape.head_dim,
               "attention shapes do not fit");
  const int64_t rows = plan.rows(), dim = shape.head_dim;
  pool_.ParallelFor((rows + kStorePiece - 1) / kStorePiece, [&](int64_t item, int) {
    const int64_t end = std::min(rows, (item + 1) * kStorePiece);
    for (int64_t r = item * kStorePiece; r < end; ++r) {
      const int64_t to = plan.kv_rows[static_cast<size_t>(r)];
      if (to == kNoKvRow) continue;
      SYSONE_CHECK(to >= 0 && to < store.rows, "row %lld of %lld", static_cast<long long>(to),
                   static_cast<long long>(store.rows));
      const float* const key = qkv.Row(r) + shape.q_cols();
      const float* const value = key + shape.kv_cols();
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        std::copy_n(key + h * dim, dim, store.keys.Row(h * store.rows + to));
        for (int64_t c = 0; c < dim; c += kValueCols)
          std::copy_n(value + h * dim + c, std::min(kValueCols, dim - c),
                      store.Value(h, to) + c / kValueCols * store.value_stride);
      }
    }
  });
}

void CpuAttention::Attend(const Rows<float>& qkv, const AttentionShape& shape, const PassPlan& plan,
                          const CpuKvStore& store, const Rows<float>& out) {
  const int32_t group = shape.heads / shape.kv_heads;
  SYSONE_CHECK(qkv.cols == shape.qkv_cols() && out.cols == shape.q_cols() &&
                   plan.rows() <= out.rows && plan.rows() <= qkv.rows &&
                   store.kv_heads == shape.kv_heads && store.head_dim == shape.head_dim &&
                   shape.heads % shape.kv_heads == 0 && group <= kMaxQueries &&
                   shape.head_dim <= kMaxHeadDim,
               "attention shapes do not fit");
  CutIntoTiles(plan, TileRows(shape), tiles_);
  const int64_t tiles = std::ssize(tiles_.tiles);
  pool_.ParallelFor(tiles * shape.kv_heads, [&](int64_t item, int thread) {
    // All tiles of a head before the next head, whose keys and values take its place in the cache.
    const TileOfRows& rows = tiles_.tiles[static_cast<size_t>(item % tiles)];
    const int64_t kv_head = item / tiles, head_col = kv_head * group * shape.head_dim;
    AttentionTile tile;
    tile.segments = tiles_.segments.data() + rows.first_segment;
    tile.segment_count = rows.segment_count;
    tile.rows = rows.rows;
    tile.shared_positions = rows.shared_positions;
    tile.q = qkv.Row(0) + head_col;
    tile.q_stride = qkv.stride;
    tile.group = group;
    tile.head_dim = shape.head_dim;
    tile.scale = shape.scale;
    tile.keys = store.keys.Row(kv_head * store.rows);
    tile.key_stride = store.keys.stride;
    tile.values = store.Value(kv_head, 0);
    tile.value_stride = store.value_stride;
    tile.out = out.Row(0) + head_col;
    tile.out_stride = out.stride;
    tile.scratch = scratch_[static_cast<size_t>(thread)].As<float>();
    kernels_.attend(tile);
  });
}

}  // namespace sysone
