// Attention on the device, in two ways: on tensor cores, and a simple one for everything else, which is also what the first is
// tested against.
//
// What a row's result depends on, in both: its query, its position, and the keys and values it sees, taken in an order that
// follows from their positions alone. Neither other rows of the pass nor which tile a row is in nor where keys lie in the store
// changes a bit of it. (The two ways differ from each other within rounding; which one is taken depends on types and sizes of the
// model, so it is the same for all passes.) A row that sees a key or a query that is not a number is NaN in the heads concerned,
// and so it is with a value; the simple way keeps that to the value's column. A row that does not see it is untouched. On tensor
// cores an infinite value counts as not a number.
//
// Precision on tensor cores: queries and the weights of the values (in 0 … 1) are rounded to bfloat16, products are summed in
// float32, and a row's weights are divided by the sum of the rounded ones.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/attention_tables.h"
#include "kernels/cuda/objects.h"

namespace sysone {

// Largest head_dim of either way.
inline constexpr int32_t kMaxAttentionDim = 256;

// One layer's attention. All pointers are the device's and must stay until the work is done.
struct AttentionCall {
  AttentionShape shape;
  const float* qkv;  // [rows, shape.qkv_cols()]; only the queries are read
  const CudaKvStore* store;
  const int32_t* table;    // as AttentionTables::Write wrote it, on 16 bytes
  AttentionLimits limits;  // that it was written for
  int32_t rows;            // of qkv and out
  EncodedRows out;         // [rows, shape.q_cols()]
  // [rows, q_cols], written where out.encoding has scales, which need a row's values first; null otherwise. There, rows of no run
  // are encoded too, from what lies in it.
  float* scratch;
  // AttentionPartBytes of memory on 16 bytes, shared by all launches of a stream, cleared before the first one. May be null with
  // limits without chunks.
  std::byte* parts;
};

// Whether the tensor-core way is taken: a bfloat16 store and a head_dim that is a multiple of 16.
bool AttendsOnTensorCores(const AttentionShape& shape, Encoding store);

// Of AttentionCall::parts: where chunks of rows that see many positions wait for the others, kMostParts of them and two for each
// block, and who waits for how many. 0 for the simple way.
int64_t AttentionPartBytes(const AttentionShape& shape, Encoding store, int32_t multiprocessors);

// Puts Backend::Attend of the rows that the table names into the stream. The launches (grids, sizes) depend on everything in `call`
// but what its pointers lead to: a recorded one serves every pass of the same limits. `multiprocessors`: of the device.
void LaunchAttention(const AttentionCall& call, int32_t multiprocessors, cudaStream_t stream);
// The same by the simple way, whatever the sizes: for tests.
void LaunchSimpleAttention(const AttentionCall& call, int32_t multiprocessors, cudaStream_t stream);

// Allows the kernels the shared memory they need; once, before the first launch (not while a stream captures), on every device.
void PrepareAttention();

}  // namespace sysone
