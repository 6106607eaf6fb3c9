// Logits of labels: one warp each. Summary of the head: blocks make the logits of a tile of the vocabulary and keep only their
// maximum and sum of exponentials, then one block a row puts the tiles together. The head is read once for kRowsOfBlock rows.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/readout_kernels.h"
#include "kernels/cuda/row_device.cuh"

namespace sysone {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTile = kWarp;      // tokens of a block: a lane each, once the logits are there
constexpr int kTokensOfWarp = 4;  // at a time, so that what is loaded of x serves them all
constexpr int kRowsOfBlock = 4;   // one for each warp, once the logits are there
constexpr int kMergeThreads = 256;
static_assert(kTile % (kWarps * kTokensOfWarp) == 0 && kRowsOfBlock <= kWarps);

template <class T>
constexpr int WideOf() {
  return 16 / sizeof(T);
}

// sums[v][r] = head_rows[v] · x_rows[r]. A lane adds up its columns in their order, the warp its lanes in a tree's.
template <int kWidth, int kTokens, int kRows, class T>
__device__ void Products(const T* const (&head_rows)[kTokens], const float* const (&x_rows)[kRows],
                         int cols, float (&sums)[kTokens][kRows]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll 2
  for (int c = lane * kWidth; c < cols; c += kWarp * kWidth) {
    float head[kTokens][kWidth];
#pragma unroll
    for (int v = 0; v < kTokens; ++v) LoadValues(head_rows[v] + c, head[v]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float x[kWidth];
      LoadValues(x_rows[r] + c, x);
#pragma unroll
      for (int v = 0; v < kTokens; ++v)
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[v][r] = fmaf(x[i], head[v][i], sums[v][r]);
    }
  }
#pragma unroll
  for (int v = 0; v < kTokens; ++v)
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[v][r] = ReduceLanes(sums[v][r], Plus());
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    LabelLogitsKernel(const float* x, const T* head, int64_t cols, const int32_t* row_of,
                      const TokenId* ids, int32_t count, float* out) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (i >= count) return;  // the whole warp
  const TokenId id = ids[i];
  float sums[1][1] = {};
  if (id != kNoToken) {
    const T* const head_rows[1] = {head + id * cols};
    const float* const x_rows[1] = {x + row_of[i] * cols};
    Products<kWidth>(head_rows, x_rows, static_cast<int>(cols), sums);
  }
  if (threadIdx.x % kWarp == 0) out[i] = sums[0][0];
}

// Of the logits of a tile: Σ exp(logit - base), where base is the maximum, or 0 if all are -infinity.
struct TileSummary {
  float max;
  float sum;
  int32_t argmax;
};

struct Maximum {
  float value;
  int32_t token;
};
constexpr int32_t kNoLogit = INT32_MAX;  // a token behind all others
// The larger one, the first of equal ones.
__device__ Maximum LargerOf(Maximum a, Maximum b) {
  return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a;
}
__device__ Maximum LargestOfWarp(Maximum mine) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    mine = LargerOf(mine, {__shfl_xor_sync(kAllLanes, mine.value, offset),
                           __shfl_xor_sync(kAllLanes, mine.token, offset)});
  return mine;
}
__device__ float BaseOf(float max) { return max == -INFINITY ? 0 : max; }

// Block b has tile b / row groups and group b % row groups, so that neighbours read the same part of the head.
template <class T, int kWidth, int kRows>
__global__ void __launch_bounds__(kThreads)
    SummarizeTilesKernel(const float* x, const T* head, int64_t cols, int32_t vocab, int32_t rows,
                         int32_t tiles, TileSummary* out) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const logits = reinterpret_cast<float(*)[kTile]>(shared_memory);  // [kRows]
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int groups = (rows + kRows - 1) / kRows;
  const int tile = static_cast<int>(blockIdx.x) / groups;
  const int first_row = static_cast<int>(blockIdx.x) % groups * kRows;

  const float* x_rows[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) x_rows[r] = x + min(first_row + r, rows - 1) * cols;
  for (int first = warp * kTokensOfWarp; first < kTile; first += kWarps * kTokensOfWarp) {
    const T* head_rows[kTokensOfWarp];
#pragma unroll
    for (int v = 0; v < kTokensOfWarp; ++v)
      head_rows[v] = head + min(tile * kTile + first + v, vocab - 1) * cols;
    float sums[kTokensOfWarp][kRows] = {};
    Products<kWidth>(head_rows, x_rows, static_cast<int>(cols), sums);
#pragma unroll
    for (int v = 0; v < kTokensOfWarp; ++v)
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (lane == 0) logits[r][first + v] = sums[v][r];
  }
  __syncthreads();

  const int row = first_row + warp;
  if (warp >= kRows || row >= rows) return;
  const int32_t token = tile * kTile + lane;
  const float logit = token < vocab ? logits[warp][lane] : -INFINITY;
  const Maximum largest = LargestOfWarp({logit, token});
  const float sum = ReduceLanes(expf(logit - BaseOf(largest.value)), Plus());
  if (lane == 0) out[int64_t{row} * tiles + tile] = {largest.value, sum, largest.token};
}

// One block a row.
__global__ void __launch_bounds__(kMergeThreads)
    MergeTilesKernel(const TileSummary* tiles_of_rows, int32_t tiles, HeadSummary* out) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  auto* const sums = reinterpret_cast<double*>(shared_memory);    // [32]
  auto* const maxima = reinterpret_cast<Maximum*>(sums + kWarp);  // [warps]
  const TileSummary* const of_row = tiles_of_rows + int64_t{blockIdx.x} * tiles;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  constexpr Maximum kNone = {-INFINITY, kNoLogit};

  Maximum largest = kNone;
  for (int t = threadIdx.x; t < tiles; t += kMergeThreads)
    largest = LargerOf(largest, {of_row[t].max, of_row[t].argmax});
  largest = LargestOfWarp(largest);
  if (lane == 0) maxima[warp] = largest;
  __syncthreads();
  largest = LargestOfWarp(lane < kMergeThreads / kWarp ? maxima[lane] : kNone);

  const float base = BaseOf(largest.value);
  double sum = 0;  // of up to some 10^5 tokens, none of which may be lost
  for (int t = threadIdx.x; t < tiles; t += kMergeThreads)
    sum += static_cast<double>(of_row[t].sum) * expf(of_row[t].max - base);
  sum = ReduceBlock(sum, Plus(), 0.0, sums);
  if (threadIdx.x == 0)
    out[blockIdx.x] = {static_cast<float>(base + log(sum)),
                       largest.token == kNoLogit ? 0 : largest.token};
}

int64_t TilesOf(int64_t vocab) { return (vocab + kTile - 1) / kTile; }

template <class T>
bool On16Bytes(const float* x, const TableRows& head) {
  return RowsOn16Bytes(x, head.cols, 4) && RowsOn16Bytes(head.values, head.cols, sizeof(T));
}

template <class T>
void LabelLogits(const float* x, const TableRows& head, const int32_t* row_of, const TokenId* ids,
                 int32_t count, float* out, cudaStream_t stream) {
  const LaunchShape shape{dim3(static_cast<unsigned>((int64_t{count} + kWarps - 1) / kWarps)),
                          dim3(kThreads)};
  Launch(shape, stream,
         On16Bytes<T>(x, head) ? LabelLogitsKernel<T, WideOf<T>()> : LabelLogitsKernel<T, 1>, x,
         static_cast<const T*>(head.values), head.cols, row_of, ids, count, out);
}

template <class T, int kRows>
void SummarizeTiles(const float* x, const TableRows& head, int32_t rows, TileSummary* out,
                    cudaStream_t stream) {
  const int64_t tiles = TilesOf(head.rows), groups = (int64_t{rows} + kRows - 1) / kRows;
  const LaunchShape shape{dim3(static_cast<unsigned>(tiles * groups)), dim3(kThreads),
                          kRows * kTile * sizeof(float)};
  Launch(shape, stream,
         On16Bytes<T>(x, head) ? SummarizeTilesKernel<T, WideOf<T>(), kRows>
                               : SummarizeTilesKernel<T, 1, kRows>,
         x, static_cast<const T*>(head.values), head.cols, head.rows, rows, tiles, out);
}

template <class T>
void SummarizeHead(const float* x, const TableRows& head, int32_t rows, void* scratch,
                   HeadSummary* out, cudaStream_t stream) {
  auto* const tiles = static_cast<TileSummary*>(scratch);
  if (rows == 1)
    SummarizeTiles<T, 1>(x, head, rows, tiles, stream);
  else
    SummarizeTiles<T, kRowsOfBlock>(x, head, rows, tiles, stream);
  const LaunchShape shape{dim3(static_cast<unsigned>(rows)), dim3(kMergeThreads),
                          kWarp * (sizeof(double) + sizeof(Maximum))};
  Launch(shape, stream, MergeTilesKernel, tiles, TilesOf(head.rows), out);
}

}  // namespace

void LaunchLabelLogits(const float* x, const TableRows& head, const int32_t* row_of,
                       const TokenId* ids, int32_t count, float* out, cudaStream_t stream) {
  if (head.encoding == Encoding::kFloat32)
    LabelLogits<float>(x, head, row_of, ids, count, out, stream);
  else
    LabelLogits<__nv_bfloat16>(x, head, row_of, ids, count, out, stream);
}

int64_t SummarizeHeadScratchBytes(int64_t vocab, int32_t rows) {
  return TilesOf(vocab) * rows * static_cast<int64_t>(sizeof(TileSummary));
}

void LaunchSummarizeHead(const float* x, const TableRows& head, int32_t rows, void* scratch,
                         HeadSummary* out, cudaStream_t stream) {
  if (head.encoding == Encoding::kFloat32)
    SummarizeHead<float>(x, head, rows, scratch, out, stream);
  else
    SummarizeHead<__nv_bfloat16>(x, head, rows, scratch, out, stream);
}

}  // namespace sysone
