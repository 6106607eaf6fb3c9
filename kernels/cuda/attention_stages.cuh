// Keys and values of the tensor-core attention kernel, from the store to shared memory: the stages of a tile, in order, and how a
// block fetches one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_device.cuh"
#include "kernels/cuda/attention_kernels.h"

namespace sysone {

// What a block works on at a time, and its size: see attention_tensor.cu.
inline constexpr int kHeads = 2;
inline constexpr int kQueries = kHeads * kTileRows;
inline constexpr int kWarps = kHeads * kStageBlocks;
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kStageKeys = kStageBlocks * kBlockKeys;
inline constexpr int kPieceValues = 8;  // 16 bytes, which are fetched and stored at once

// Shared memory for heads of up to kDim columns, a multiple of 32. Rows are 16 bytes longer than they are full, so that the same
// columns of eight neighbouring ones lie in different banks.
template <int kDim>
struct Shared {
  static constexpr int kStride = kDim + kPieceValues;  // of queries, keys and values
  static constexpr int kSumStride = kDim + 8;          // floats

  struct Buffer {
    uint16_t keys[kStageKeys][kStride];
    uint16_t values[kStageKeys][kStride];
  };
  uint16_t queries[kQueries][kStride];
  union {
    Buffer buffers[2];
    float sums[kStageBlocks][kQueries][kSumStride];  // of the warps, when all keys were seen
  };
  float largest[kStageBlocks][kQueries];
  float totals[kStageBlocks][kQueries];
  int32_t rows[kTileRows];  // of the pass, or -1
  int32_t positions[kTileRows];
  int32_t parts_before;  // of the tile, that were done before this one
};

// The stages of a tile over one chunk of positions, in order: those of its common beginning, then each segment's own. The same for
// all threads.
class Stages {
 public:
  __device__ Stages(const AttentionArguments& a, const DeviceTile& tile, int32_t chunk)
      : segments_(a.segments + tile.first_segment),
        segment_count_(tile.segment_count),
        chunk_key_(chunk * kChunkKeys),
        own_key_(max(tile.shared_blocks * kBlockKeys, chunk_key_)) {
    block = chunk_key_ / kBlockKeys;
    first_key_ = chunk_key_;
    end_key_ = min(own_key_, chunk_key_ + kChunkKeys);
    first_row = 0;
    end_row = tile.rows;
    first_span = from_span = segments_[0].first_span;
    end_span = segments_[0].end_span;
    part = -1;
    if (end_key_ <= first_key_) NextSegment();
  }
  __device__ bool AtEnd() const { return part == segment_count_; }
  __device__ void Next() {
    block += kStageBlocks;
    if (block * kBlockKeys >= end_key_) NextSegment();
  }
  // Positions to fetch: end at the last one that anyone sees.
  __device__ int32_t first_key() const { return max(first_key_, block * kBlockKeys); }
  __device__ int32_t end_key() const { return min(end_key_, block * kBlockKeys + kStageKeys); }

  int32_t part;                  // -1: the common beginning; another one has other spans
  int32_t block;                 // first of the stage
  int32_t first_row, end_row;    // of the tile, those that look at it
  int32_t first_span, end_span;  // of the run
  int32_t from_span;             // one that the part begins in or behind

 private:
  __device__ void NextSegment() {
    do {
      if (++part == segment_count_) return;
      const DeviceSegment& segment = segments_[part];
      first_key_ = own_key_;
      end_key_ = min(segment.first_position + segment.rows, chunk_key_ + kChunkKeys);
      first_row = segment.tile_row;
      end_row = first_row + segment.rows;
      first_span = segment.first_span;
      end_span = segment.end_span;
      from_span = segment.rest_span;
      block = own_key_ / kStageKeys * kStageBlocks;
    } while (end_key_ <= own_key_);
  }

  const DeviceSegment* segments_;
  int32_t segment_count_;
  // First positions of the chunk, and of those in it that are not common.
  int32_t chunk_key_, own_key_;
  int32_t first_key_, end_key_;
};

// Keys and values on their way from global to shared memory, a part of each in every thread.
template <int kDim>
class Fetched {
 public:
  using Buffer = typename Shared<kDim>::Buffer;

  // `kv_col`: first column of the kv head.
  __device__ Fetched(const AttentionArguments& a, int64_t kv_col) : a_(a), kv_col_(kv_col) {}

  // Begins to load a stage; Store then puts it where all threads see it.
  __device__ void Load(const Stages& stage) {
    Follow(stage);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) LoadPiece(stage, i, keys_[i], values_[i]);
  }
  __device__ void Store(Buffer& to) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) StorePiece(i, keys_[i], values_[i], to);
  }

  // Both at once, with fewer registers.
  __device__ void Copy(const Stages& stage, Buffer& to) {
    Follow(stage);
#pragma unroll 2
    for (int i = 0; i < kPieces; ++i) {
      uint4 key, value;
      LoadPiece(stage, i, key, value);
      StorePiece(i, key, value, to);
    }
  }

 private:
  static constexpr int32_t kNoPart = -2;
  static constexpr int kRowPieces = kDim / kPieceValues;
  static constexpr int kPieces = kStageKeys * kRowPieces / kThreads;
  static_assert(kStageKeys * kRowPieces % kThreads == 0);

  __device__ static int Key(int i) {
    return (static_cast<int>(threadIdx.x) + i * kThreads) / kRowPieces;
  }
  __device__ static int Col(int i) {
    return (static_cast<int>(threadIdx.x) + i * kThreads) % kRowPieces * kPieceValues;
  }

  __device__ void Follow(const Stages& stage) {
    if (part_ != stage.part) {
      part_ = stage.part;
      cursor_.Start(a_.spans, stage.first_span, stage.from_span, stage.end_span, stage.first_key());
    }
  }
  __device__ void LoadPiece(const Stages& stage, int i, uint4& key, uint4& value) {
    const int32_t position = stage.block * kBlockKeys + Key(i);
    key = value = make_uint4(0, 0, 0, 0);
    if (position < stage.first_key() || position >= stage.end_key() || Col(i) >= a_.head_dim)
      return;
    const int64_t at = cursor_.RowOf(position) * a_.kv_stride + kv_col_ + Col(i);
    key = __ldg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(a_.keys) + at));
    value = __ldg(reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(a_.values) + at));
  }
  __device__ static void StorePiece(int i, uint4 key, uint4 value, Buffer& to) {
    if (!AllFinite(value)) {
      value = make_uint4(0, 0, 0, 0);
      key.x = 0x7FFF7FFFu;
    }
    *reinterpret_cast<uint4*>(&to.keys[Key(i)][Col(i)]) = key;
    *reinterpret_cast<uint4*>(&to.values[Key(i)][Col(i)]) = value;
  }
  // An infinity or NaN has all bits of the exponent set, and no other number has: adding 1 to it carries into the sign.
  __device__ static bool AllFinite(const uint4& v) {
    constexpr uint32_t kExponents = 0x7F807F80u, kOnes = 0x00800080u, kCarries = 0x80008000u;
    return ((((v.x & kExponents) + kOnes) | ((v.y & kExponents) + kOnes) |
             ((v.z & kExponents) + kOnes) | ((v.w & kExponents) + kOnes)) &
            kCarries) == 0;
  }

  uint4 keys_[kPieces], values_[kPieces];
  const AttentionArguments& a_;
  const int64_t kv_col_;
  KeyCursor cursor_;
  int32_t part_ = kNoPart;  // that the cursor is in
};

}  // namespace sysone
