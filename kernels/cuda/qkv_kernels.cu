// Queries, keys and values: norm and rotation of heads, and what is kept of them. A head is a matter of a few lanes of a warp,
// which hold it in registers.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_device.cuh"
#include "kernels/cuda/row_kernels.h"

namespace sysone {
namespace {

constexpr int kThreads = 128;

struct Heads {
  float* qkv;
  int32_t heads, kv_heads, head_dim;
  const float *cos, *sin;
  const float *q_norm, *k_norm;  // null: none
  float eps;
  const int32_t* positions;
  int32_t lane_bits;  // of a head's lanes: there are 2^lane_bits
};

// kWidth neighbouring pairs (c, c + head_dim / 2) of a head.
template <int kWidth>
struct Pairs {
  float a[kWidth], b[kWidth];
};
template <int kWidth>
__device__ Pairs<kWidth> LoadPairs(const float* from, int half, int c) {
  Pairs<kWidth> pairs;
  LoadValues(from + c, pairs.a);
  LoadValues(from + half + c, pairs.b);
  return pairs;
}
template <int kWidth, class T>
__device__ void StorePairs(const Pairs<kWidth>& pairs, T* to, int half, int c) {
  StoreValues(pairs.a, to + c);
  StoreValues(pairs.b, to + half + c);
}

template <int kWidth>
__device__ float SquaresOf(const Pairs<kWidth>& pairs) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) squares += fmaf(pairs.a[i], pairs.a[i], pairs.b[i] * pairs.b[i]);
  return squares;
}

template <int kWidth>
__device__ void Scale(const float* weight, int half, int c, float scale, Pairs<kWidth>& pairs) {
  const Pairs<kWidth> w = LoadPairs<kWidth>(weight, half, c);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    pairs.a[i] = pairs.a[i] * scale * w.a[i];
    pairs.b[i] = pairs.b[i] * scale * w.b[i];
  }
}

template <int kWidth>
__device__ void Rotate(const float* cos, const float* sin, int c, Pairs<kWidth>& pairs) {
  float cosines[kWidth], sines[kWidth];
  LoadValues(cos + c, cosines);
  LoadValues(sin + c, sines);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const float a = pairs.a[i], b = pairs.b[i];
    pairs.a[i] = a * cosines[i] - b * sines[i];
    pairs.b[i] = a * sines[i] + b * cosines[i];
  }
}

// grid [rows, heads of a row / heads of a block]: q and k heads, and v heads, too, if they are stored as Stored.
struct NotStored {};
template <int kWidth, class Stored>
__global__ void __launch_bounds__(kThreads) NormRopeKernel(Heads in, KvRows store) {
  constexpr bool kStores = !std::is_same_v<Stored, NotStored>;
  const int64_t row = blockIdx.x;
  const int lanes = 1 << in.lane_bits, lane = threadIdx.x & (lanes - 1);
  const int head = static_cast<int>((blockIdx.y * kThreads + threadIdx.x) >> in.lane_bits);
  const int half = in.head_dim / 2, step = lanes * kWidth;
  const int turned = in.heads + in.kv_heads, all = turned + in.kv_heads;
  const bool here = head < (kStores ? all : turned);
  // Lanes without a head come along to the shuffles.
  const int first = here ? lane * kWidth : half;
  float* const from = in.qkv + (row * all + head) * in.head_dim;
  const float* const weight = head < in.heads ? in.q_norm : head < turned ? in.k_norm : nullptr;

  Pairs<kWidth> held = {};
  if (first < half) held = LoadPairs<kWidth>(from, half, first);
  float scale = 1;
  if (in.q_norm || in.k_norm) {
    float squares = SquaresOf(held);
    for (int c = first + step; c < half; c += step)
      squares += SquaresOf(LoadPairs<kWidth>(from, half, c));
    squares = ReduceLanes(squares, Plus(), lanes);
    scale = 1.0f / sqrtf(squares / static_cast<float>(in.head_dim) + in.eps);
    if (!(squares < INFINITY)) scale = NAN;  // or what is no number would be hidden by a scale of 0
  }

  Stored* kept = nullptr;
  if constexpr (kStores) {
    const int64_t kv_row = store.kv_rows[row];
    if (head >= in.heads && kv_row != kNoKvRow) {
      void* const side = head < turned ? store.keys : store.values;
      const int kv_head = head < turned ? head - in.heads : head - turned;
      kept = static_cast<Stored*>(side) + (kv_row * in.kv_heads + kv_head) * in.head_dim;
    }
  }
  const int64_t angles = int64_t{in.positions[row]} * half;
  for (int c = first; c < half; c += step) {
    if (c != first) held = LoadPairs<kWidth>(from, half, c);
    if (weight) Scale(weight, half, c, scale, held);
    if (head < turned) {
      Rotate(in.cos + angles, in.sin + angles, c, held);
      StorePairs(held, from, half, c);
    }
    if constexpr (kStores)
      if (kept) StorePairs(held, kept, half, c);
  }
}

template <class Stored>
void NormRope(Heads in, const KvRows& store, int32_t rows, cudaStream_t stream) {
  const int64_t half = in.head_dim / 2;
  const bool wide = RowsOn16Bytes(in.qkv, half, 4) && RowsOn16Bytes(in.cos, half, 4) &&
                    RowsOn16Bytes(in.sin, half, 4) && RowsOn16Bytes(in.q_norm, half, 4) &&
                    RowsOn16Bytes(in.k_norm, half, 4) && RowsOn16Bytes(store.keys, half, 4) &&
                    RowsOn16Bytes(store.values, half, 4);
  const auto pieces = static_cast<unsigned>(wide ? half / 4 : half);
  in.lane_bits = std::bit_width(std::min(std::bit_ceil(pieces), unsigned{kWarp})) - 1;
  const int32_t stored_heads = std::is_same_v<Stored, NotStored> ? 0 : in.kv_heads;
  const int32_t heads = in.heads + in.kv_heads + stored_heads,
                heads_of_block = kThreads >> in.lane_bits;
  const LaunchShape shape{
      dim3(static_cast<unsigned>(rows),
           static_cast<unsigned>((heads + heads_of_block - 1) / heads_of_block)),
      dim3(kThreads)};
  if (wide)
    Launch(shape, stream, NormRopeKernel<4, Stored>, in, store);
  else
    Launch(shape, stream, NormRopeKernel<1, Stored>, in, store);
}

// grid [rows, pieces of k | v]. qkv is at row 0's k.
template <int kWidth, class Stored>
__global__ void __launch_bounds__(kThreads)
    StoreKvKernel(const float* kv, int64_t stride, int64_t kv_cols, KvRows store) {
  int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  const int64_t to = store.kv_rows[blockIdx.x];
  if (c >= 2 * kv_cols || to == kNoKvRow) return;
  float values[kWidth];
  LoadValues(kv + blockIdx.x * stride + c, values);
  void* side = store.keys;
  if (c >= kv_cols) {
    side = store.values;
    c -= kv_cols;
  }
  StoreValues(values, static_cast<Stored*>(side) + to * kv_cols + c);
}

template <class Stored>
void StoreKv(const float* qkv, const AttentionShape& shape, const KvRows& store, int32_t rows,
             cudaStream_t stream) {
  const float* const kv = qkv + shape.q_cols();
  const int64_t stride = shape.qkv_cols(), kv_cols = shape.kv_cols();
  const bool wide = RowsOn16Bytes(kv, stride, 4) && kv_cols % 4 == 0 &&
                    RowsOn16Bytes(store.keys, kv_cols, 4) &&
                    RowsOn16Bytes(store.values, kv_cols, 4);
  const auto launch = [&](auto* kernel, int64_t width) {
    const int64_t pieces = 2 * kv_cols / width;
    Launch({dim3(static_cast<unsigned>(rows),
                 static_cast<unsigned>((pieces + kThreads - 1) / kThreads)),
            dim3(kThreads)},
           stream, kernel, kv, stride, kv_cols, store);
  };
  if (wide)
    launch(StoreKvKernel<4, Stored>, 4);
  else
    launch(StoreKvKernel<1, Stored>, 1);
}

Heads HeadsOf(float* qkv, const AttentionShape& shape, const RopeRows& rope, const float* q_norm,
              const float* k_norm, float eps, const int32_t* positions) {
  return {.qkv = qkv,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .cos = rope.cos,
          .sin = rope.sin,
          .q_norm = q_norm,
          .k_norm = k_norm,
          .eps = eps,
          .positions = positions,
          .lane_bits = 0};
}

}  // namespace

void LaunchNormRope(float* qkv, const AttentionShape& shape, const RopeRows& rope,
                    const float* q_norm, const float* k_norm, float eps, const int32_t* positions,
                    int32_t rows, cudaStream_t stream) {
  NormRope<NotStored>(HeadsOf(qkv, shape, rope, q_norm, k_norm, eps, positions), KvRows{}, rows,
                      stream);
}

void LaunchStoreKv(const float* qkv, const AttentionShape& shape, const KvRows& store, int32_t rows,
                   cudaStream_t stream) {
  if (store.encoding == Encoding::kFloat32)
    StoreKv<float>(qkv, shape, store, rows, stream);
  else
    StoreKv<__nv_bfloat16>(qkv, shape, store, rows, stream);
}

void LaunchNormRopeStoreKv(float* qkv, const AttentionShape& shape, const RopeRows& rope,
                           const float* q_norm, const float* k_norm, float eps,
                           const int32_t* positions, const KvRows& store, int32_t rows,
                           cudaStream_t stream) {
  const Heads in = HeadsOf(qkv, shape, rope, q_norm, k_norm, eps, positions);
  if (store.encoding == Encoding::kFloat32)
    NormRope<float>(in, store, rows, stream);
  else
    NormRope<__nv_bfloat16>(in, store, rows, stream);
}

}  // namespace sysone
