// What the CPU backend's objects hold, shared by the backend and its matrix products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cpu/buffer.h"
#include "kernels/dtype.h"

namespace sysone {

// Row-major, rows apart by RowStride.
template <class T>
struct Rows {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  Buffer buffer;

  Rows() = default;
  Rows(int64_t row_count, int64_t col_count)
      : rows(row_count),
        cols(col_count),
        stride(RowStride<T>(col_count)),
        buffer(static_cast<size_t>(rows * stride) * sizeof(T)) {}
  T* Row(int64_t r) const { return buffer.As<T>() + r * stride; }
};

// [cols], float32 whatever the weights are.
struct CpuVector : Vector {
  explicit CpuVector(int64_t size) : values(1, size) {}
  Rows<float> values;
};

// Packed in whatever way the matrix products of this backend want.
struct CpuWeight : Weight {
  int64_t out_cols = 0;
  int64_t in_cols = 0;
};

// One of the two is used, the other is empty.
struct CpuTable : Table {
  int64_t rows = 0;
  int64_t cols = 0;
  Dtype dtype = Dtype::kFloat32;
  Rows<float> f32;
  Rows<uint16_t> bf16;
};

// cos and sin of every position, [positions, head_dim / 2] each.
struct CpuRope : RopeTable {
  CpuRope(int64_t positions, int64_t half) : cos(positions, half), sin(positions, half) {}
  Rows<float> cos, sin;
};

// [rows, cols], float32 whatever the weights are.
struct CpuTensor : Tensor {
  CpuTensor(int64_t rows, int64_t cols) : values(rows, cols) {}
  Rows<float> values;
};

// Encoded as the matrix products of this backend want it. One of the two is used, the other is
// empty.
struct CpuOperand : Operand {
  int64_t rows = 0;
  int64_t cols = 0;
  Dtype encoding = Dtype::kFloat32;
  Rows<float> f32;
  Rows<uint16_t> bf16;
};

// [rows, kv_heads * head_dim] each.
struct CpuKvStore : KvStore {
  CpuKvStore(int64_t rows, int64_t cols) : keys(rows, cols), values(rows, cols) {}
  static int64_t RowBytes(int64_t cols) {
    return 2 * RowStride<float>(cols) * static_cast<int64_t>(sizeof(float));
  }
  Rows<float> keys, values;
};

// What is behind a handle of this backend; handing it one of another backend's is our own mistake.
inline const Rows<float>& In(const Tensor& tensor) {
  return static_cast<const CpuTensor&>(tensor).values;
}
inline const float* In(const Vector& vector) {
  return static_cast<const CpuVector&>(vector).values.Row(0);
}

}  // namespace sysone
