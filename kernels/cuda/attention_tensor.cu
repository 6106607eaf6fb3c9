// Attention on tensor cores, over keys and values in bfloat16.
//
// A block takes one tile and two heads of one kv head at a time: 32 queries, which share all keys that it fetches. Keys and values
// come in stages of 64 positions, from global memory to registers while the stage before is worked on, then to one of two buffers
// in shared memory. Of its eight warps
//
//              positions of a stage   0 … 15   16 … 31   32 … 47   48 … 63
//   first head,  rows of the tile     warp 0    warp 2    warp 4    warp 6
//   second head, rows of the tile     warp 1    warp 3    warp 5    warp 7
//
// each has a softmax of its own, over every fourth block of 16 positions of a chunk. At the end of a chunk the four of a row are put
// together, in this order, and those of the chunks in theirs (attention_parts.cuh). A warp whose rows see nothing of a block leaves it out; rows that see nothing of a block that others look at keep what
// they have, bit for bit. So a row's result follows from its own keys in the order of their positions.
//
// Numbers that are none: the scores of keys that a row does not see are replaced, whatever they are. A value that is no finite
// number would spoil rows that do not see it (0 · NaN); it is replaced by 0, and its key by NaN, which spoils the rows that do.
// SPDX-License-Identifier: Apache-2.0
#include <ptx.h>

#include <algorithm>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/attention_stages.cuh"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

// Wider heads leave no registers for the queries and for the stage to come.
template <int kDim>
constexpr bool kKeepsQueries = kDim <= 128;
template <int kDim>
constexpr bool kFetchesAhead = kDim <= 128;

// What a pair of rounded values adds up to.
__device__ float SumOfPair(uint32_t pair) {
  return __uint_as_float(pair << 16) + __uint_as_float(pair & 0xFFFF0000u);
}

// One warp's softmax: 16 queries of one head over the blocks of its column of the table above. A lane has two rows of every
// product, lane / 4 and that + 8, and in each of 8 columns the two from lane % 4 * 2 on.
template <int kDim>
class WarpSoftmax {
 public:
  __device__ WarpSoftmax() {
#pragma unroll
    for (auto& sum : sums_)
#pragma unroll
      for (float& value : sum) value = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest_[r] = kNothingSeen;
      total_[r] = 0;
    }
  }

  // queries: of the warp's head. positions: of its 16 rows.
  __device__ void Begin(const uint16_t (*queries)[Shared<kDim>::kStride],
                        const int32_t* positions) {
    queries_ = &queries[lane() % 16][lane() / 16 * 8];
    if constexpr (kKeepsQueries<kDim>) {
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k) LoadMatrix4(kept_queries_[k], queries_ + k * 16);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) positions_[r] = positions[Row(r)];
  }

  // Takes the warp's block of a stage in.
  __device__ void Add(const typename Shared<kDim>::Buffer& buffer, const Stages& stage, int quarter,
                      float exponent_scale) {
    const int32_t first = (stage.block + quarter) * kBlockKeys;
    if (first < stage.first_key() || first >= stage.end_key()) return;
    int32_t last_seen[2];  // by each row, among the keys of this part
#pragma unroll
    for (int r = 0; r < 2; ++r)
      last_seen[r] = Row(r) >= stage.first_row && Row(r) < stage.end_row ? positions_[r] : -1;
    if (!__any_sync(kWholeWarp, max(last_seen[0], last_seen[1]) >= first)) return;
    float scores[2][4];
    Multiply(buffer.keys + quarter * kBlockKeys, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (first + half * 8 + lane() % 4 * 2 + i % 2 > last_seen[i / 2])
          scores[half][i] = -INFINITY;
    uint32_t weights[4];
    Weigh(scores, exponent_scale, weights);
    AddValues(weights, buffer.values + quarter * kBlockKeys);
  }

  // Leaves what was found for others; `m0` is the first of the warp's queries.
  __device__ void Finish(Shared<kDim>& shared, int quarter, int m0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = total_[r];
      total += __shfl_xor_sync(kWholeWarp, total, 1);
      total += __shfl_xor_sync(kWholeWarp, total, 2);
      const int m = m0 + Row(r);
      if (lane() % 4 == 0) {
        shared.largest[quarter][m] = largest_[r];
        shared.totals[quarter][m] = total;
      }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        *reinterpret_cast<float2*>(&shared.sums[quarter][m][n * 8 + lane() % 4 * 2]) =
            make_float2(sums_[n][2 * r], sums_[n][2 * r + 1]);
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int Row(int r) { return lane() / 4 + 8 * r; }

  // scores = queries · keysᵀ, of the keys 0 … 7 and 8 … 15.
  __device__ void Multiply(const uint16_t (*keys)[Shared<kDim>::kStride], float (&scores)[2][4]) {
    const uint16_t* const from = &keys[lane() % 8 + lane() / 16 * 8][lane() / 8 % 2 * 8];
#pragma unroll
    for (auto& score : scores)
#pragma unroll
      for (float& value : score) value = 0;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t q[4], both[4];
      if constexpr (kKeepsQueries<kDim>) {
#pragma unroll
        for (int i = 0; i < 4; ++i) q[i] = kept_queries_[k][i];
      } else {
        LoadMatrix4(q, queries_ + k * 16);
      }
      LoadMatrix4(both, from + k * 16);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        MmaBf16(scores[half], q, {both[2 * half], both[2 * half + 1]});
    }
  }

  // Turns scores into weights relative to the largest score so far, and what was summed before likewise.
  __device__ void Weigh(const float (&scores)[2][4], float exponent_scale, uint32_t (&weights)[4]) {
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]),
                            fmaxf(scores[1][2 * r], scores[1][2 * r + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, 2));
      largest = fmaxf(largest, largest_[r]);
      factor[r] = exp2f(exponent_scale * (largest_[r] - largest));
      largest_[r] = largest;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        weights[2 * half + r] =
            Rounded(exp2f(exponent_scale * (scores[half][2 * r] - largest)),
                    exp2f(exponent_scale * (scores[half][2 * r + 1] - largest)));
      total_[r] = fmaf(total_[r], factor[r], SumOfPair(weights[r]) + SumOfPair(weights[2 + r]));
    }
    // Most blocks hold no new largest score; multiplying by 1 would change nothing.
    if (!__any_sync(kWholeWarp, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
    for (auto& sum : sums_)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] *= factor[i / 2];
  }

  // sums += weights · values
  __device__ void AddValues(const uint32_t (&weights)[4],
                            const uint16_t (*values)[Shared<kDim>::kStride]) {
    const uint16_t* const from = &values[lane() % 16][lane() / 16 * 8];
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t both[4];
      LoadMatrix4Transposed(both, from + n * 16);
      MmaBf16(sums_[2 * n], weights, {both[0], both[1]});
      MmaBf16(sums_[2 * n + 1], weights, {both[2], both[3]});
    }
  }

  float sums_[kDim / 8][4];
  float largest_[2], total_[2];  // total: of the lane's columns
  int32_t positions_[2];
  const uint16_t* queries_;
  uint32_t kept_queries_[kKeepsQueries<kDim> ? kDim / 16 : 1][4];
};

// Which rows of the pass the tile's are.
template <int kDim>
__device__ void FindRows(const AttentionArguments& a, const DeviceTile& tile,
                         Shared<kDim>& shared) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < tile.segment_count) {
    const DeviceSegment segment = a.segments[tile.first_segment + thread];
    for (int32_t i = 0; i < segment.rows; ++i) {
      shared.rows[segment.tile_row + i] = segment.first_row + i;
      shared.positions[segment.tile_row + i] = segment.first_position + i;
    }
  }
  if (thread >= tile.rows && thread < kTileRows)
    shared.rows[thread] = shared.positions[thread] = -1;
}

// Queries of `heads` heads from `head` on, as bfloat16; zeros for rows, heads and columns that there are not.
template <int kDim>
__device__ void LoadQueries(const AttentionArguments& a, int32_t head, int32_t heads,
                            Shared<kDim>& shared) {
  constexpr int kRowPieces = kDim / 4;
  for (auto i = static_cast<int>(threadIdx.x); i < kQueries * kRowPieces; i += kThreads) {
    const int m = i / kRowPieces, col = i % kRowPieces * 4;
    const int32_t row = shared.rows[m % kTileRows];
    float4 q = make_float4(0, 0, 0, 0);
    if (row >= 0 && m / kTileRows < heads && col < a.head_dim)
      q = *reinterpret_cast<const float4*>(a.queries + row * a.query_stride +
                                           (head + m / kTileRows) * a.head_dim + col);
    *reinterpret_cast<uint2*>(&shared.queries[m][col]) =
        make_uint2(Rounded(q.x, q.y), Rounded(q.z, q.w));
  }
}

template <int kDim, class Out>
__global__ void __launch_bounds__(kThreads, 1) AttendTensor(AttentionArguments a) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto& shared = *reinterpret_cast<Shared<kDim>*>(shared_memory);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_head = warp % kHeads, quarter = warp / kHeads;
  const int32_t group = a.heads / a.kv_heads, pairs = a.tile_items / a.kv_heads;
  const int32_t items = *a.tile_count * a.tile_items;
  for (auto item = static_cast<int32_t>(blockIdx.x); item < items;
       item += static_cast<int32_t>(gridDim.x)) {
    const DeviceTile tile = a.tiles[item / a.tile_items];
    const int32_t kv_head = item / pairs % a.kv_heads, first = item % pairs * kHeads;
    const BlockHeads heads{kv_head * group + first, min(kHeads, group - first),
                           item % a.tile_items};
    const int64_t kv_col = int64_t{kv_head} * a.head_dim;

    for (int32_t chunk = tile.first_chunk; chunk < tile.end_chunk; ++chunk) {
      Stages stage(a, tile, chunk);
      Fetched<kDim> fetched(a, kv_col);
      if constexpr (kFetchesAhead<kDim>) fetched.Load(stage);
      __syncthreads();  // the tile or chunk before is done with shared memory
      if (chunk == tile.first_chunk) {
        FindRows(a, tile, shared);
        __syncthreads();
        LoadQueries(a, heads.first, heads.count, shared);
      }
      if constexpr (kFetchesAhead<kDim>)
        fetched.Store(shared.buffers[0]);
      else
        fetched.Copy(stage, shared.buffers[0]);
      __syncthreads();
      WarpSoftmax<kDim> softmax;
      softmax.Begin(shared.queries + warp_head * kTileRows, shared.positions);
      for (int buffer = 0; !stage.AtEnd(); buffer ^= 1) {
        Stages next = stage;
        next.Next();
        const bool more = !next.AtEnd();
        if (kFetchesAhead<kDim> && more) fetched.Load(next);
        if (warp_head < heads.count)
          softmax.Add(shared.buffers[buffer], stage, quarter, a.exponent_scale);
        if (kFetchesAhead<kDim> && more) fetched.Store(shared.buffers[buffer ^ 1]);
        if (!kFetchesAhead<kDim> && more) fetched.Copy(next, shared.buffers[buffer ^ 1]);
        __syncthreads();  // all are done with the one buffer, and the other is full
        stage = next;
      }
      softmax.Finish(shared, quarter, warp_head * kTileRows);
      __syncthreads();
      TakeChunk<kDim, Out>(a, tile, chunk, heads, shared);
    }
    if (tile.first_part >= 0) FinishParts<kDim, Out>(a, tile, heads, shared);
  }
}

// Calls use.operator()<size>() with the smallest size that holds `head_dim`.
template <class Use>
void WithSize(int32_t head_dim, const Use& use) {
  if (head_dim <= 64)
    use.template operator()<64>();
  else if (head_dim <= 96)
    use.template operator()<96>();
  else if (head_dim <= 128)
    use.template operator()<128>();
  else
    use.template operator()<256>();
}

// Calls use(kernel, shared bytes) with the kernel of that type for the smallest size that holds `head_dim`.
template <class Out, class Use>
void WithKernel(int32_t head_dim, const Use& use) {
  WithSize(head_dim, [&]<int kDim>() { use(AttendTensor<kDim, Out>, sizeof(Shared<kDim>)); });
}

template <class Out>
void Prepare() {
  for (const int32_t head_dim : {64, 96, 128, 256}) {
    WithKernel<Out>(head_dim, [](auto* kernel, size_t shared_bytes) {
      SYSONE_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared_bytes)));
    });
  }
}

}  // namespace

void LaunchTensorAttend(const AttentionArguments& arguments, Encoding out, int64_t max_tiles,
                        int64_t blocks, cudaStream_t stream) {
  const int64_t most = max_tiles * arguments.tile_items;
  const auto launch = [&](auto* kernel, size_t shared_bytes) {
    Launch({static_cast<unsigned>(std::min(most, blocks)), kThreads, shared_bytes}, stream, kernel,
           arguments);
  };
  if (out == Encoding::kBfloat16)
    WithKernel<__nv_bfloat16>(arguments.head_dim, launch);
  else
    WithKernel<float>(arguments.head_dim, launch);
}

int32_t TensorAttendItems(int32_t heads, int32_t kv_heads) {
  return kv_heads * ((heads / kv_heads + kHeads - 1) / kHeads);
}

int64_t TensorAttendSlotBytes(int32_t head_dim) {
  int64_t bytes = 0;
  WithSize(head_dim, [&]<int kDim>() { bytes = sizeof(Slot<kDim>); });
  return bytes;
}

void PrepareTensorAttend() {
  Prepare<float>();
  Prepare<__nv_bfloat16>();
}

}  // namespace sysone
