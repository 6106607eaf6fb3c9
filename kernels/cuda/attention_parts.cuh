// How the tensor-core attention kernel puts softmaxes together: the four of a block's warps over one chunk of positions, then those
// of the chunks, in order. A chunk's part of a result waits in device memory, in a slot, where another chunk follows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/attention_device.cuh"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_stages.cuh"

namespace sysone {

// Two neighbouring values as the left side of a product takes them.
__device__ inline uint32_t Rounded(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  uint32_t bits;
  std::memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// Four neighbouring columns of one query's softmax, not yet divided by the total of the weights.
struct Softmax4 {
  float largest, total;
  float4 sums;

  // Adding one that saw nothing changes no bit.
  __device__ void Add(const Softmax4& next, float exponent_scale) {
    const float both = fmaxf(largest, next.largest);
    const float factor = exp2f(exponent_scale * (largest - both));
    const float next_factor = exp2f(exponent_scale * (next.largest - both));
    largest = both;
    total = fmaf(total, factor, next.total * next_factor);
    sums.x = fmaf(sums.x, factor, next.sums.x * next_factor);
    sums.y = fmaf(sums.y, factor, next.sums.y * next_factor);
    sums.z = fmaf(sums.z, factor, next.sums.z * next_factor);
    sums.w = fmaf(sums.w, factor, next.sums.w * next_factor);
  }
};

// The heads that a block works on, and the queries in its shared memory that there are.
struct BlockHeads {
  int32_t first, count;
  int32_t item;  // its number among those of a tile

  // use(row of the pass, query, first of four columns), each by one thread: always the same one.
  template <int kDim, class Use>
  __device__ void ForEach(const AttentionArguments& a, const Shared<kDim>& shared,
                          const Use& use) const {
    constexpr int kRowPieces = kDim / 4;
    for (auto i = static_cast<int>(threadIdx.x); i < kQueries * kRowPieces; i += kThreads) {
      const int m = i / kRowPieces, col = i % kRowPieces * 4;
      const int32_t row = shared.rows[m % kTileRows];
      if (row >= 0 && m / kTileRows < count && col < a.head_dim) use(row, m, col);
    }
  }
};

// What a block found of its queries in one chunk.
template <int kDim>
struct Slot {
  float sums[kQueries][kDim];
  float largest[kQueries], totals[kQueries];

  __device__ void Put(int m, int col, const Softmax4& found) {
    *reinterpret_cast<float4*>(&sums[m][col]) = found.sums;
    if (col == 0) {
      largest[m] = found.largest;
      totals[m] = found.total;
    }
  }
  // Past the nearest cache, which does not know what other multiprocessors wrote.
  __device__ Softmax4 Get(int m, int col) const {
    return {__ldcg(&largest[m]), __ldcg(&totals[m]),
            __ldcg(reinterpret_cast<const float4*>(&sums[m][col]))};
  }
};

// The slots: of parts, by chunk and then by the item of heads; then two for each block.
template <int kDim>
__device__ Slot<kDim>& PartSlot(const AttentionArguments& a, int32_t part,
                                const BlockHeads& heads) {
  return static_cast<Slot<kDim>*>(a.slots)[int64_t{part} * a.tile_items + heads.item];
}
template <int kDim>
__device__ Slot<kDim>& BlockSlot(const AttentionArguments& a, int32_t chunk) {
  return static_cast<Slot<kDim>*>(
      a.slots)[int64_t{kMostParts} * a.tile_items + blockIdx.x * 2 + chunk % 2];
}

// The four softmaxes of the warps, in the order of their positions.
template <int kDim>
__device__ Softmax4 MergeWarps(const Shared<kDim>& shared, int m, int col, float exponent_scale) {
  float largest = shared.largest[0][m];
#pragma unroll
  for (int w = 1; w < kStageBlocks; ++w) largest = fmaxf(largest, shared.largest[w][m]);
  Softmax4 all{largest, 0, make_float4(0, 0, 0, 0)};
#pragma unroll
  for (int w = 0; w < kStageBlocks; ++w) {
    const float factor = exp2f(exponent_scale * (shared.largest[w][m] - largest));
    const float4 x = *reinterpret_cast<const float4*>(&shared.sums[w][m][col]);
    all.total = fmaf(shared.totals[w][m], factor, all.total);
    all.sums.x = fmaf(x.x, factor, all.sums.x);
    all.sums.y = fmaf(x.y, factor, all.sums.y);
    all.sums.z = fmaf(x.z, factor, all.sums.z);
    all.sums.w = fmaf(x.w, factor, all.sums.w);
  }
  return all;
}

__device__ inline void StoreFour(const float4& x, float* to) { *reinterpret_cast<float4*>(to) = x; }
__device__ inline void StoreFour(const float4& x, __nv_bfloat16* to) {
  *reinterpret_cast<uint2*>(to) = make_uint2(Rounded(x.x, x.y), Rounded(x.z, x.w));
}

template <class Out>
__device__ void StoreResult(const AttentionArguments& a, const BlockHeads& heads, int32_t row,
                            int m, int col, const Softmax4& found) {
  const float inverse = 1.0f / found.total;
  // Adding 0 makes 0 of a -0, which depends on how often nothing was added.
  const float4 result =
      make_float4(fmaf(found.sums.x, inverse, 0.0f), fmaf(found.sums.y, inverse, 0.0f),
                  fmaf(found.sums.z, inverse, 0.0f), fmaf(found.sums.w, inverse, 0.0f));
  StoreFour(result, static_cast<Out*>(a.out) + row * a.out_stride +
                        (heads.first + m / kTileRows) * a.head_dim + col);
}

// What the warps left of a chunk becomes the result, if all chunks are known, or else waits for the others. All threads.
template <int kDim, class Out>
__device__ void TakeChunk(const AttentionArguments& a, const DeviceTile& tile, int32_t chunk,
                          const BlockHeads& heads, const Shared<kDim>& shared) {
  heads.ForEach(a, shared, [&](int32_t row, int m, int col) {
    Softmax4 found = MergeWarps(shared, m, col, a.exponent_scale);
    if (tile.first_part >= 0) {
      PartSlot<kDim>(a, tile.first_part + chunk, heads).Put(m, col, found);
      return;
    }
    // One slot is read while the other one is written: threads share what a slot has of a query.
    if (chunk > 0) {
      Softmax4 before = BlockSlot<kDim>(a, chunk - 1).Get(m, col);
      before.Add(found, a.exponent_scale);
      found = before;
    }
    if (chunk + 1 < tile.chunks)
      BlockSlot<kDim>(a, chunk).Put(m, col, found);
    else
      StoreResult<Out>(a, heads, row, m, col, found);
  });
}

// Behind the last chunk that a block has of a tile in parts: the block that comes last puts all parts together. The order in which
// they were done plays no part in the result. All threads.
template <int kDim, class Out>
__device__ void FinishParts(const AttentionArguments& a, const DeviceTile& tile,
                            const BlockHeads& heads, Shared<kDim>& shared) {
  __threadfence();  // what this thread wrote is seen by whoever sees the count
  __syncthreads();
  int32_t* const count = a.parts_done + int64_t{tile.first_part} * a.tile_items + heads.item;
  if (threadIdx.x == 0) shared.parts_before = atomicAdd(count, 1);
  __syncthreads();
  if (shared.parts_before + 1 < tile.chunks) return;
  __threadfence();
  heads.ForEach(a, shared, [&](int32_t row, int m, int col) {
    Softmax4 all = PartSlot<kDim>(a, tile.first_part, heads).Get(m, col);
#pragma unroll 4
    for (int32_t chunk = 1; chunk < tile.chunks; ++chunk)
      all.Add(PartSlot<kDim>(a, tile.first_part + chunk, heads).Get(m, col), a.exponent_scale);
    StoreResult<Out>(a, heads, row, m, col, all);
  });
  if (threadIdx.x == 0) *count = 0;  // for the next launch
}

}  // namespace sysone
