// Launches of the kernels that work on single rows: embedding, norms, rotation, gate, encoding, copies, and the scaling of
// products of int8 and fp8.
//
// Common to all of them. Every pointer is to device memory; `rows` is what the grid is made of, and no rows launch nothing.
// The work is put on `stream` and nobody waits for it; what a pointer leads to has to stay until it is done. Rows of `cols`
// values lie one right behind the other unless a stride (in values) is given. Every size and alignment is right; rows that
// start on 16 bytes and have a multiple of 4 columns (8 in a table) are read 16 bytes at a time.
// A row's result depends on that row alone, bit for bit, and not on how many rows there are.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/objects.h"

namespace sysone {

// A table to read single rows of: [rows, cols], float32 or bfloat16.
struct TableRows {
  Encoding encoding;
  const void* values;
  int64_t rows, cols;
};
inline TableRows RowsOf(const CudaTable& table) {
  return {table.encoding, table.values.data(), table.rows, table.cols};
}

// Rows of float32 as the rows of an operand; for results that stay in full precision.
inline EncodedRows RowsOf(float* values, int64_t cols) {
  return {Encoding::kFloat32, values, nullptr, cols, cols};
}

// out[r] = table[ids[r]], zeros for kNoToken. ids [rows], out [rows, table.cols].
void LaunchEmbed(const TableRows& table, const TokenId* ids, int32_t rows, float* out,
                 cudaStream_t stream);

// --- Producers of operands. Each writes out.cols values of a row, never its padding, and its scale where there is one.
// With scales: the largest |value| of the row becomes 127 (int8) or 448 (fp8), values are rounded to the nearest code, a row
// below 2^-100 is zeros with the scale 0. A row that has an infinity or a NaN gets NaN as its scale and zeros as its codes,
// so that all that comes of it is NaN.

// out[r] = x[r] / sqrt(mean(x[r]²) + eps) · weight. x [rows, out.cols], weight [out.cols]. All of a row is NaN if Σ x² is no
// finite float32. The final norm is this one with RowsOf(float*, cols).
void LaunchRmsNorm(const float* x, const float* weight, float eps, int32_t rows,
                   const EncodedRows& out, cudaStream_t stream);

// out[r] = silu(gate) · up. gate_up [rows, gate | up], out.cols of each.
void LaunchGatedSilu(const float* gate_up, int32_t rows, const EncodedRows& out,
                     cudaStream_t stream);

// out[r] = x[r]. x [rows, out.cols]. Also for weights, where a "row" is an output column.
void LaunchEncodeRows(const float* x, int32_t rows, const EncodedRows& out, cudaStream_t stream);

// --- Queries, keys and values: qkv [rows, shape.qkv_cols()], q | k | v.

// Tables of all positions, [positions, head_dim / 2]; head_dim is even.
struct RopeRows {
  const float *cos, *sin;
};
// A store to write rows of, and where: row r's key and value go to row kv_rows[r] of keys and values, [rows of the store,
// kv_heads, head_dim] each, unless that is kNoKvRow. float32 or bfloat16.
struct KvRows {
  Encoding encoding;
  void *keys, *values;
  const int32_t* kv_rows;  // [rows]
};

// In qkv: RMSNorm of each q and k head (q_norm, k_norm [head_dim]; null: none of these), then rotation by positions[r].
void LaunchNormRope(float* qkv, const AttentionShape& shape, const RopeRows& rope,
                    const float* q_norm, const float* k_norm, float eps, const int32_t* positions,
                    int32_t rows, cudaStream_t stream);

// Stores k and v of every row as they are.
void LaunchStoreKv(const float* qkv, const AttentionShape& shape, const KvRows& store, int32_t rows,
                   cudaStream_t stream);

// LaunchNormRope and LaunchStoreKv in one: the same results in qkv and in the store.
void LaunchNormRopeStoreKv(float* qkv, const AttentionShape& shape, const RopeRows& rope,
                           const float* q_norm, const float* k_norm, float eps,
                           const int32_t* positions, const KvRows& store, int32_t rows,
                           cudaStream_t stream);

// --- Copies.

// out[i] = x[from[i]]. from [rows], out [rows, cols] is not in x.
void LaunchSelectRows(const float* x, const int32_t* from, int64_t cols, int32_t rows, float* out,
                      cudaStream_t stream);

// x[0 … count) = 0, all rows at once.
void LaunchClear(float* x, int64_t count, cudaStream_t stream);

// --- Behind a product of codes.

// What a product of codes is to be multiplied by, and where it goes: value = product · row_scales[r] · column_scales[c].
// Then out[r, c] = value + bias[c] (null: no bias), or with `add` out[r, c] += value (no bias then).
struct ScaledOut {
  const float* row_scales;     // [rows], of the operand
  const float* column_scales;  // [cols], of the weight
  const float* bias;           // [cols] or null
  bool add;
  float* out;  // [rows, cols]
};

// Products are [rows, stride], cols ≤ stride of them in use: exact sums of int8 codes, or float32 sums of fp8 codes.
void LaunchScaleOut(const int32_t* products, int64_t stride, int64_t cols, int32_t rows,
                    const ScaledOut& to, cudaStream_t stream);
void LaunchScaleOut(const float* products, int64_t stride, int64_t cols, int32_t rows,
                    const ScaledOut& to, cudaStream_t stream);

}  // namespace sysone
