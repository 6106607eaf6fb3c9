// The launches behind attention.h, which chooses between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_tables.h"
#include "kernels/cuda/objects.h"

namespace sysone {

// Handed to the kernels by value. Pointers are the device's; strides are in values.
struct AttentionArguments {
  const float* queries;  // of row 0, head 0; heads of a row behind each other
  int64_t query_stride;
  const void *keys, *values;  // [rows of the store, kv_heads, head_dim]
  int64_t kv_stride;
  void* out;  // of row 0, head 0; heads of a row behind each other
  int64_t out_stride;
  int32_t heads, kv_heads, head_dim;
  float exponent_scale;  // softmax weights are 2^(exponent_scale · (q·k - the largest))

  const int32_t* tile_count;
  const DeviceTile* tiles;
  const DeviceSegment* segments;
  const DeviceSpan* spans;

  // Of the tensor-core kernel. A tile is so many items, each of which a block does at a time.
  int32_t tile_items;
  void*
      slots;  // kMostParts · tile_items, and two for each block; null where no tile has more than one chunk
  int32_t* parts_done;  // [kMostParts · tile_items], zeros before and after a launch
};

// Both: at most `blocks` blocks, fewer where a full table has no work for more; `out` is kFloat32 or kBfloat16.
// Any sizes up to kMaxAttentionDim; `store` is kFloat32 or kBfloat16.
void LaunchSimpleAttend(const AttentionArguments& arguments, Encoding store, Encoding out,
                        int64_t max_tiles, int64_t blocks, cudaStream_t stream);
// A bfloat16 store whose rows begin on 16 bytes, head_dim a multiple of 16 up to kMaxAttentionDim, queries on 16 bytes and out on 8.
void LaunchTensorAttend(const AttentionArguments& arguments, Encoding out, int64_t max_tiles,
                        int64_t blocks, cudaStream_t stream);
// AttentionArguments::tile_items, and the size of a slot.
int32_t TensorAttendItems(int32_t heads, int32_t kv_heads);
int64_t TensorAttendSlotBytes(int32_t head_dim);
// Allows LaunchTensorAttend its shared memory.
void PrepareTensorAttend();

}  // namespace sysone
