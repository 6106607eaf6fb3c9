// Attention of any sizes and types, a warp a row and head: what the tensor-core kernel is tested against.
//
// A warp takes the keys 32 at a time, by position. The lanes divide the columns of the head among them, so that a row of the store
// is read as one piece of memory: each has a part of the score of all 32 keys, and after these are added up it has one key's
// score. Sums are float32.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_device.cuh"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

constexpr int kWarps = 4;
constexpr int kLaneCols = kMaxAttentionDim / 32;  // of the head, in each lane

// What the lanes of a warp tell each other of the keys that they look at.
struct WarpKeys {
  int32_t rows[32];  // of the store
  float weights[32];
};

__device__ float ToFloat(float x) { return x; }
__device__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void Store(float x, float* to) { *to = x; }
__device__ void Store(float x, __nv_bfloat16* to) { *to = __float2bfloat16_rn(x); }

// values[j] added up over all lanes, in lane j. At each step a lane hands half of its sums to the lane that is to have them.
__device__ float SumByLane(float (&values)[32]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) {
    const bool upper = (lane & bits) != 0;
#pragma unroll
    for (int j = 0; j < bits; ++j) {
      const float kept = upper ? values[j + bits] : values[j];
      const float given = upper ? values[j] : values[j + bits];
      values[j] = kept + __shfl_xor_sync(kWholeWarp, given, bits);
    }
  }
  return values[0];
}

// The score of key number `lane`, of the first `count` of those in shared.rows; lanes behind them get 0.
template <class Stored>
__device__ float Score(const AttentionArguments& a, const Stored* keys, const WarpKeys& shared,
                       int count, const float (&query)[kLaneCols]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float scores[32];
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    scores[j] = 0;
    if (j >= count) continue;
    const Stored* const key = keys + shared.rows[j] * a.kv_stride;
#pragma unroll
    for (int i = 0; i < kLaneCols; ++i) {
      const int col = lane + 32 * i;
      if (col < a.head_dim) scores[j] = fmaf(query[i], ToFloat(key[col]), scores[j]);
    }
  }
  return SumByLane(scores);
}

// One row and head, by a warp. The columns lane, lane + 32 … of the query are in `query`, those of the result in `sums`.
template <class Stored>
__device__ void AttendRow(const AttentionArguments& a, const DeviceSegment& segment,
                          int32_t position, int32_t kv_col, const float (&query)[kLaneCols],
                          WarpKeys& shared, float (&sums)[kLaneCols]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const Stored* const keys = static_cast<const Stored*>(a.keys) + kv_col;
  const Stored* const values = static_cast<const Stored*>(a.values) + kv_col;
  KeyCursor cursor;
  cursor.Start(a.spans, segment.first_span, segment.first_span);
  float largest = kNothingSeen, total = 0;  // total: of the keys that this lane has the scores of
  for (int32_t first = 0; first <= position; first += 32) {
    const int count = min(32, position - first + 1);
    __syncwarp();  // all lanes are done with the keys before
    if (lane < count) shared.rows[lane] = cursor.RowOf(first + lane);
    __syncwarp();
    float score = Score(a, keys, shared, count, query);
    if (lane >= count) score = -INFINITY;
    float new_largest = fmaxf(largest, score);
    for (int bits = 16; bits > 0; bits /= 2)
      new_largest = fmaxf(new_largest, __shfl_xor_sync(kWholeWarp, new_largest, bits));
    const float weight = exp2f(a.exponent_scale * (score - new_largest));
    const float factor = exp2f(a.exponent_scale * (largest - new_largest));
    largest = new_largest;
    total = total * factor + weight;
#pragma unroll
    for (int i = 0; i < kLaneCols; ++i) sums[i] *= factor;
    shared.weights[lane] = weight;
    __syncwarp();
#pragma unroll 4
    for (int j = 0; j < count; ++j) {
      const float key_weight = shared.weights[j];
      const Stored* const value = values + shared.rows[j] * a.kv_stride;
#pragma unroll
      for (int i = 0; i < kLaneCols; ++i) {
        const int col = lane + 32 * i;
        if (col < a.head_dim) sums[i] = fmaf(key_weight, ToFloat(value[col]), sums[i]);
      }
    }
  }
  for (int bits = 16; bits > 0; bits /= 2) total += __shfl_xor_sync(kWholeWarp, total, bits);
  const float inverse = 1.0f / total;
#pragma unroll
  for (int i = 0; i < kLaneCols; ++i) sums[i] *= inverse;
}

// A block takes a tile and a head at a time, each of its warps every fourth row.
template <class Stored, class Out>
__global__ void __launch_bounds__(kWarps * 32, 1) AttendSimple(AttentionArguments a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  WarpKeys& keys = reinterpret_cast<WarpKeys*>(shared_memory)[warp];
  const int32_t items = *a.tile_count * a.heads;
  for (auto item = static_cast<int32_t>(blockIdx.x); item < items;
       item += static_cast<int32_t>(gridDim.x)) {
    const DeviceTile tile = a.tiles[item / a.heads];
    if (tile.first_chunk > 0) continue;  // the entry of the first chunk does all of them
    const int32_t head = item % a.heads;
    const int32_t kv_col = head / (a.heads / a.kv_heads) * a.head_dim;
    const DeviceSegment* segment = a.segments + tile.first_segment;
    for (int32_t r = warp; r < tile.rows; r += kWarps) {
      while (r >= segment->tile_row + segment->rows) ++segment;
      const int64_t row = segment->first_row + r - segment->tile_row;
      const float* const from = a.queries + row * a.query_stride + head * a.head_dim;
      float query[kLaneCols], sums[kLaneCols] = {};
#pragma unroll
      for (int i = 0; i < kLaneCols; ++i)
        query[i] = lane + 32 * i < a.head_dim ? from[lane + 32 * i] : 0.0f;
      AttendRow<Stored>(a, *segment, segment->first_position + r - segment->tile_row, kv_col, query,
                        keys, sums);
      Out* const to = static_cast<Out*>(a.out) + row * a.out_stride + head * a.head_dim;
#pragma unroll
      for (int i = 0; i < kLaneCols; ++i)
        if (lane + 32 * i < a.head_dim) Store(sums[i], to + lane + 32 * i);
    }
  }
}

template <class Stored>
void LaunchFor(const AttentionArguments& arguments, Encoding out, const LaunchShape& shape,
               cudaStream_t stream) {
  if (out == Encoding::kBfloat16)
    Launch(shape, stream, AttendSimple<Stored, __nv_bfloat16>, arguments);
  else
    Launch(shape, stream, AttendSimple<Stored, float>, arguments);
}

}  // namespace

void LaunchSimpleAttend(const AttentionArguments& arguments, Encoding store, Encoding out,
                        int64_t max_tiles, int64_t blocks, cudaStream_t stream) {
  const LaunchShape shape{static_cast<unsigned>(std::min(max_tiles * arguments.heads, blocks)),
                          kWarps * 32, kWarps * sizeof(WarpKeys)};
  if (store == Encoding::kBfloat16)
    LaunchFor<__nv_bfloat16>(arguments, out, shape, stream);
  else
    LaunchFor<float>(arguments, out, shape, stream);
}

}  // namespace sysone
