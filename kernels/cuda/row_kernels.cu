// Copies of rows, and the scaling of products of codes: kernels without a sum.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_device.cuh"
#include "kernels/cuda/row_kernels.h"

namespace sysone {
namespace {

constexpr int kThreads = 256;

// One block a row, as many threads as the row has pieces.
dim3 ThreadsOf(int64_t pieces) {
  return dim3(
      static_cast<unsigned>(std::clamp<int64_t>((pieces + kWarp - 1) / kWarp, 1, 8) * kWarp));
}
// A block for each row and each kThreads pieces of it.
dim3 GridOf(int32_t rows, int64_t pieces) {
  return dim3(static_cast<unsigned>(rows),
              static_cast<unsigned>((pieces + kThreads - 1) / kThreads));
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    GatherRowsKernel(const T* table, int64_t cols, const int32_t* ids, float* out) {
  const int32_t id = ids[blockIdx.x];
  const T* const from = table + id * cols;
  float* const to = out + blockIdx.x * cols;
  for (int64_t c = threadIdx.x * kWidth; c < cols; c += blockDim.x * kWidth) {
    float values[kWidth] = {};
    if (id != kNoToken) LoadValues(from + c, values);
    StoreValues(values, to + c);
  }
}

template <class T>
void GatherRows(const T* table, int64_t cols, const int32_t* ids, int32_t rows, float* out,
                cudaStream_t stream) {
  constexpr int kWide = 16 / sizeof(T);
  const auto launch = [&](auto* kernel, int width) {
    Launch({dim3(static_cast<unsigned>(rows)), ThreadsOf(cols / width)}, stream, kernel, table,
           cols, ids, out);
  };
  if (RowsOn16Bytes(table, cols, sizeof(T)) && RowsOn16Bytes(out, cols, sizeof(float)))
    launch(GatherRowsKernel<T, kWide>, kWide);
  else
    launch(GatherRowsKernel<T, 1>, 1);
}

template <class Product, int kWidth, bool kAdd>
__global__ void __launch_bounds__(kThreads)
    ScaleOutKernel(const Product* products, int64_t stride, int64_t cols, ScaledOut to) {
  const int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kWidth;
  if (c >= cols) return;
  const float row_scale = to.row_scales[blockIdx.x];
  float* const out = to.out + blockIdx.x * cols + c;
  float product[kWidth], column_scale[kWidth], before[kWidth] = {};
  LoadValues(products + blockIdx.x * stride + c, product);
  LoadValues(to.column_scales + c, column_scale);
  if constexpr (kAdd)
    LoadValues(out, before);
  else if (to.bias)
    LoadValues(to.bias + c, before);
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    product[i] = fmaf(product[i] * row_scale, column_scale[i], before[i]);
  StoreValues(product, out);
}

template <class Product, bool kAdd>
void ScaleOut(const Product* products, int64_t stride, int64_t cols, int32_t rows,
              const ScaledOut& to, cudaStream_t stream) {
  const bool wide = RowsOn16Bytes(products, stride, 4) && RowsOn16Bytes(to.out, cols, 4) &&
                    RowsOn16Bytes(to.column_scales, cols, 4) && RowsOn16Bytes(to.bias, cols, 4);
  const auto launch = [&](auto* kernel, int64_t width) {
    Launch({GridOf(rows, cols / width), dim3(kThreads)}, stream, kernel, products, stride, cols,
           to);
  };
  if (wide)
    launch(ScaleOutKernel<Product, 4, kAdd>, 4);
  else
    launch(ScaleOutKernel<Product, 1, kAdd>, 1);
}

}  // namespace

void LaunchEmbed(const TableRows& table, const TokenId* ids, int32_t rows, float* out,
                 cudaStream_t stream) {
  if (table.encoding == Encoding::kFloat32)
    GatherRows(static_cast<const float*>(table.values), table.cols, ids, rows, out, stream);
  else
    GatherRows(static_cast<const __nv_bfloat16*>(table.values), table.cols, ids, rows, out, stream);
}

void LaunchSelectRows(const float* x, const int32_t* from, int64_t cols, int32_t rows, float* out,
                      cudaStream_t stream) {
  GatherRows(x, cols, from, rows, out, stream);
}

void LaunchClear(float* x, int64_t count, cudaStream_t stream) {
  if (count > 0)
    SYSONE_CUDA(cudaMemsetAsync(x, 0, static_cast<size_t>(count) * sizeof(float), stream));
}

void LaunchScaleOut(const int32_t* products, int64_t stride, int64_t cols, int32_t rows,
                    const ScaledOut& to, cudaStream_t stream) {
  if (to.add)
    ScaleOut<int32_t, true>(products, stride, cols, rows, to, stream);
  else
    ScaleOut<int32_t, false>(products, stride, cols, rows, to, stream);
}

void LaunchScaleOut(const float* products, int64_t stride, int64_t cols, int32_t rows,
                    const ScaledOut& to, cudaStream_t stream) {
  if (to.add)
    ScaleOut<float, true>(products, stride, cols, rows, to, stream);
  else
    ScaleOut<float, false>(products, stride, cols, rows, to, stream);
}

}  // namespace sysone
