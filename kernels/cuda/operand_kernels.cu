// Producers of operands: norm, gate, and plain encoding. Where a whole row has to be seen before a value can be written (its
// mean square, its largest value), one block has the row and holds it in registers, so that memory is read once; the rest of a
// row too long for that is read again. Where not, each value is a matter of its own.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_device.cuh"
#include "kernels/cuda/row_kernels.h"

namespace sysone {
namespace {

constexpr int kRowThreads = 512;  // of a block that has a row, at most: leaves 128 registers each
constexpr int kEachThreads = 256;

template <Encoding>
struct CodeOf;
template <>
struct CodeOf<Encoding::kFloat32> {
  using Type = float;
};
template <>
struct CodeOf<Encoding::kBfloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct CodeOf<Encoding::kInt8> {
  using Type = int8_t;
  static constexpr float kLargest = 127;
};
template <>
struct CodeOf<Encoding::kFp8> {
  using Type = __nv_fp8_e4m3;
  static constexpr float kLargest = 448;
};

template <Encoding kEncoding>
constexpr bool kHasScales = HasScales(kEncoding);

// Where values come from: Load gives those of a row from column c on, or what Finish makes them of.

struct Values {
  static constexpr bool kNorm = false;
  const float* x;

  bool On16Bytes(int64_t cols) const { return RowsOn16Bytes(x, cols, sizeof(float)); }
  template <int kWidth>
  __device__ void Load(int64_t row, int64_t cols, int c, float (&v)[kWidth]) const {
    LoadValues(x + row * cols + c, v);
  }
  template <int kWidth>
  __device__ void Finish(int, float, float (&)[kWidth]) const {}
};

struct Normed {
  static constexpr bool kNorm = true;
  const float *x, *weight;
  float eps;

  bool On16Bytes(int64_t cols) const {
    return RowsOn16Bytes(x, cols, sizeof(float)) && RowsOn16Bytes(weight, cols, sizeof(float));
  }
  template <int kWidth>
  __device__ void Load(int64_t row, int64_t cols, int c, float (&v)[kWidth]) const {
    LoadValues(x + row * cols + c, v);
  }
  template <int kWidth>
  __device__ void Finish(int c, float scale, float (&v)[kWidth]) const {
    float w[kWidth];
    LoadValues(weight + c, w);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = v[i] * scale * w[i];
  }
  // A sum that is no number must not become the scale 0, which would hide it.
  __device__ float ScaleOf(float squares, int64_t cols) const {
    const float scale = 1.0f / sqrtf(squares / static_cast<float>(cols) + eps);
    return squares < INFINITY ? scale : NAN;
  }
};

struct Gated {
  static constexpr bool kNorm = false;
  const float* gate_up;

  bool On16Bytes(int64_t cols) const { return RowsOn16Bytes(gate_up, cols, sizeof(float)); }
  template <int kWidth>
  __device__ void Load(int64_t row, int64_t cols, int c, float (&v)[kWidth]) const {
    const float* const gates = gate_up + row * 2 * cols + c;
    float gate[kWidth], up[kWidth];
    LoadValues(gates, gate);
    LoadValues(gates + cols, up);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
  }
  template <int kWidth>
  __device__ void Finish(int, float, float (&)[kWidth]) const {}
};

// From one value to the next code, for a row whose largest |value| has these bits. inverse 0: all codes are zero.
struct RowScale {
  float step, inverse;
};
template <Encoding kEncoding>
__device__ RowScale ScaleOfRow(unsigned largest_bits) {
  constexpr float kLargest = CodeOf<kEncoding>::kLargest;
  const float largest = __uint_as_float(largest_bits);
  if (!(largest < INFINITY)) return {NAN, 0};
  // Below 2^-100 the inverse may be no float, and nothing that small matters.
  if (largest < 0x1p-100f) return {0, 0};
  return {largest / kLargest, kLargest / largest};
}

template <Encoding kEncoding, int kWidth, class Source>
__global__ void __launch_bounds__(kEachThreads) EncodeEachKernel(Source source, EncodedRows out) {
  using Code = typename CodeOf<kEncoding>::Type;
  const int c = static_cast<int>(blockIdx.y * kEachThreads + threadIdx.x) * kWidth;
  if (c >= out.cols) return;
  float v[kWidth];
  source.Load(blockIdx.x, out.cols, c, v);
  StoreValues(v, static_cast<Code*>(out.values) + blockIdx.x * out.stride + c);
}

// One block has one row. The first kHeld · blockDim pieces of kWidth values stay in registers.
template <Encoding kEncoding, int kWidth, int kHeld, class Source>
__global__ void __launch_bounds__(kRowThreads, 1) EncodeRowKernel(Source source, EncodedRows out) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  using Code = typename CodeOf<kEncoding>::Type;
  const int64_t row = blockIdx.x;
  const int cols = static_cast<int>(out.cols);
  const int step = blockDim.x * kWidth;
  const int first = threadIdx.x * kWidth;
  float held[kHeld][kWidth] = {};
  // visit(c, values) for all pieces of this thread: the held ones as they are, the others as `load` makes them.
  const auto for_all = [&](const auto& load, const auto& visit) {
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (first + j * step < cols) visit(first + j * step, held[j]);
    for (int c = first + kHeld * step; c < cols; c += step) {
      float v[kWidth];
      load(c, v);
      visit(c, v);
    }
  };
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (first + j * step < cols) source.Load(row, cols, first + j * step, held[j]);

  const auto raw = [&](int c, float(&v)[kWidth]) { source.Load(row, cols, c, v); };
  float norm = 1;
  if constexpr (Source::kNorm) {
    float squares = 0;
    for_all(raw, [&](int, const float(&v)[kWidth]) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares = fmaf(v[i], v[i], squares);
    });
    squares = ReduceBlock(squares, Plus(), 0.0f, reinterpret_cast<float*>(shared_memory));
    norm = source.ScaleOf(squares, cols);
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      if (first + j * step < cols) source.Finish(first + j * step, norm, held[j]);
  }
  const auto finished = [&](int c, float(&v)[kWidth]) {
    source.Load(row, cols, c, v);
    source.Finish(c, norm, v);
  };
  Code* const to = static_cast<Code*>(out.values) + row * out.stride;
  if constexpr (!kHasScales<kEncoding>) {
    for_all(finished, [&](int c, const float(&v)[kWidth]) { StoreValues(v, to + c); });
  } else {
    // As integers, magnitudes are in the same order, and NaN is above infinity.
    unsigned largest = 0;
    for_all(finished, [&](int, const float(&v)[kWidth]) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        largest = Larger()(largest, __float_as_uint(v[i]) & 0x7FFFFFFFu);
    });
    largest =
        ReduceBlock(largest, Larger(), 0u, reinterpret_cast<unsigned*>(shared_memory) + kWarp);
    const RowScale scale = ScaleOfRow<kEncoding>(largest);
    if (threadIdx.x == 0) out.scales[row] = scale.step;
    for_all(finished, [&](int c, const float(&v)[kWidth]) {
      float scaled[kWidth] = {};
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (scale.inverse != 0) scaled[i] = v[i] * scale.inverse;
      StoreValues(scaled, to + c);
    });
  }
}

template <Encoding kEncoding, class Source>
void EncodeWholeRows(const Source& source, int32_t rows, const EncodedRows& out, bool wide,
                     cudaStream_t stream) {
  const int64_t pieces = wide ? out.cols / 4 : out.cols;
  const int64_t warps = std::clamp<int64_t>((pieces + kWarp - 1) / kWarp, 1, kRowThreads / kWarp);
  const LaunchShape shape{dim3(static_cast<unsigned>(rows)),
                          dim3(static_cast<unsigned>(warps * kWarp)), 2 * kWarp * sizeof(float)};
  if (!wide)
    Launch(shape, stream, EncodeRowKernel<kEncoding, 1, 8, Source>, source, out);
  else if (pieces <= kRowThreads)
    Launch(shape, stream, EncodeRowKernel<kEncoding, 4, 1, Source>, source, out);
  else if (pieces <= 2 * kRowThreads)
    Launch(shape, stream, EncodeRowKernel<kEncoding, 4, 2, Source>, source, out);
  else
    Launch(shape, stream, EncodeRowKernel<kEncoding, 4, 8, Source>, source, out);
}

template <Encoding kEncoding, class Source>
void EncodeEach(const Source& source, int32_t rows, const EncodedRows& out, bool wide,
                cudaStream_t stream) {
  const int64_t pieces = wide ? out.cols / 4 : out.cols;
  const LaunchShape shape{dim3(static_cast<unsigned>(rows),
                               static_cast<unsigned>((pieces + kEachThreads - 1) / kEachThreads)),
                          dim3(kEachThreads)};
  if (wide)
    Launch(shape, stream, EncodeEachKernel<kEncoding, 4, Source>, source, out);
  else
    Launch(shape, stream, EncodeEachKernel<kEncoding, 1, Source>, source, out);
}

template <Encoding kEncoding, class Source>
void EncodeAs(const Source& source, int32_t rows, const EncodedRows& out, cudaStream_t stream) {
  const bool wide = source.On16Bytes(out.cols) && RowsOn16Bytes(out.values, out.stride, 4);
  if constexpr (Source::kNorm || kHasScales<kEncoding>)
    EncodeWholeRows<kEncoding>(source, rows, out, wide, stream);
  else
    EncodeEach<kEncoding>(source, rows, out, wide, stream);
}

template <class Source>
void Encode(const Source& source, int32_t rows, const EncodedRows& out, cudaStream_t stream) {
  switch (out.encoding) {
    case Encoding::kFloat32:
      return EncodeAs<Encoding::kFloat32>(source, rows, out, stream);
    case Encoding::kBfloat16:
      return EncodeAs<Encoding::kBfloat16>(source, rows, out, stream);
    case Encoding::kInt8:
      return EncodeAs<Encoding::kInt8>(source, rows, out, stream);
    case Encoding::kFp8:
      return EncodeAs<Encoding::kFp8>(source, rows, out, stream);
  }
}

}  // namespace

void LaunchRmsNorm(const float* x, const float* weight, float eps, int32_t rows,
                   const EncodedRows& out, cudaStream_t stream) {
  Encode(Normed{x, weight, eps}, rows, out, stream);
}

void LaunchGatedSilu(const float* gate_up, int32_t rows, const EncodedRows& out,
                     cudaStream_t stream) {
  Encode(Gated{gate_up}, rows, out, stream);
}

void LaunchEncodeRows(const float* x, int32_t rows, const EncodedRows& out, cudaStream_t stream) {
  Encode(Values{x}, rows, out, stream);
}

}  // namespace sysone
