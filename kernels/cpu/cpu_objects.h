// What the CPU backend's objects hold, shared by the backend and its matrix products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/cpu/buffer.h"
#include "kernels/dtype.h"
#include "kernels/int8.h"

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

// [rows / tile_rows][lanes][tile_rows], the order in which a register tile reads. A lane is neighbours of a row: four codes of
// 8 bits, or two of 16.
struct TiledRows {
  int64_t tile_rows = 1;  // of a tile's line of the cache, one thread writes all
  int64_t lanes = 0;      // of a row: whole groups of kernels/int8.h
  Buffer buffer;

  TiledRows() = default;
  TiledRows(int64_t rows, int64_t lane_count, int64_t rows_of_tile)
      : tile_rows(rows_of_tile),
        lanes(lane_count),
        buffer(static_cast<size_t>(RoundUp(rows, tile_rows) * lanes) * sizeof(int32_t)) {}
  int32_t* Row(int64_t r) const {
    return buffer.As<int32_t>() + r / tile_rows * tile_rows * lanes + r % tile_rows;
  }
};

// How the left side of a matrix product is written.
enum class Encoding { kFloat32, kBfloat16, kInt8, kInt16 };

// Encoded as the matrix products of this backend want it; the members of other encodings are empty.
struct CpuOperand : Operand {
  int64_t rows = 0;
  int64_t cols = 0;
  Encoding encoding = Encoding::kFloat32;
  Rows<float> f32;  // else only for attention: whole rows whose parts come from several threads
  Rows<uint16_t> bf16;
  TiledRows codes;            // kernels/int8.h; zeros behind cols
  Rows<float> steps;          // of codes, as Int8Product wants them
  Rows<Peak> peaks;           // of kInt8
  Rows<int32_t> peak_counts;  // [1, rows]
  int64_t groups = 0;

  float* Steps(int64_t row) const {
    const int64_t in_tile = row % codes.tile_rows;
    return steps.Row(0) + (row - in_tile) * 2 * groups + in_tile;
  }
};

// What is behind a handle of this backend; handing it one of another backend's is our own mistake.
inline const Rows<float>& In(const Tensor& tensor) {
  return static_cast<const CpuTensor&>(tensor).values;
}
inline const float* In(const Vector& vector) {
  return static_cast<const CpuVector&>(vector).values.Row(0);
}

}  // namespace sysone
