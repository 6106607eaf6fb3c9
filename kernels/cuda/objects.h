// What the CUDA backend makes for its callers. All memory is the device's; layouts are row-major.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"

namespace sysone {

// How the two sides of a matrix product are written. Both sides of one product are written alike.
enum class Encoding {
  kFloat32,
  kBfloat16,
  kInt8,  // q · scale of the row (activations) or of the output column (weights), q = -127 … 127
  kFp8,   // e4m3 · scale, likewise; the largest |value| of the row becomes 448
};

// Of one value.
constexpr int64_t BytesOf(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFloat32:
      return 4;
    case Encoding::kBfloat16:
      return 2;
    default:
      return 1;
  }
}
// Whether values are to be multiplied by a scale of their row.
constexpr bool HasScales(Encoding encoding) {
  return encoding == Encoding::kInt8 || encoding == Encoding::kFp8;
}

// Columns of an encoded row are padded with zeros to a multiple of this, as cuBLASLt wants them; the depth of a product is the
// padded one. Whoever makes an Operand clears its memory, and no kernel writes the padding afterwards.
inline constexpr int64_t kDepthStep = 16;
constexpr int64_t PaddedDepth(int64_t cols) {
  return (cols + kDepthStep - 1) / kDepthStep * kDepthStep;
}

struct CudaTensor final : Tensor {  // [rows, cols] float32, one row right behind the other
  int64_t rows = 0, cols = 0;
  DeviceArray<float> values;
};

struct CudaOperand final : Operand {  // [rows, stride]
  Encoding encoding = Encoding::kBfloat16;
  int64_t rows = 0, cols = 0, stride = 0;  // stride = PaddedDepth(cols), in values
  DeviceArray<std::byte> values;
  DeviceArray<float> scales;  // [rows], where HasScales
};

struct CudaWeight final : Weight {  // [padded_out, stride]
  Encoding encoding = Encoding::kBfloat16;
  // Rows behind out_cols are zeros, so that a product may be as wide as cuBLASLt wants it.
  int64_t out_cols = 0, padded_out = 0, in_cols = 0, stride = 0;
  DeviceArray<std::byte> values;
  DeviceArray<float> scales;  // [padded_out], where HasScales
};

// A norm weight or a bias.
struct CudaVector final : Vector {
  int64_t size = 0;
  DeviceArray<float> values;
};

// Embedding and head: bfloat16, but float32 where the backend's type is float32.
struct CudaTable final : Table {  // [rows, cols]
  Encoding encoding = Encoding::kBfloat16;
  int64_t rows = 0, cols = 0;
  DeviceArray<std::byte> values;
};

struct CudaRope final : RopeTable {  // [positions, head_dim / 2] each
  int32_t head_dim = 0;
  int64_t positions = 0;
  DeviceArray<float> cos, sin;
};

// Keys and values of one layer: [rows, kv_heads, head_dim] each; bfloat16, but float32 where the backend's type is float32.
struct CudaKvStore final : KvStore {
  Encoding encoding = Encoding::kBfloat16;
  int64_t rows = 0;
  int32_t kv_heads = 0, head_dim = 0;
  DeviceArray<std::byte> keys, values;
};

// Device pointers of an Operand, for kernels that write one.
struct EncodedRows {
  Encoding encoding;
  void* values;
  float* scales;  // null unless HasScales
  int64_t cols;
  int64_t stride;  // in values
};
inline EncodedRows RowsOf(CudaOperand& operand) {
  return {operand.encoding, operand.values.data(), operand.scales.data(), operand.cols,
          operand.stride};
}

}  // namespace sysone
