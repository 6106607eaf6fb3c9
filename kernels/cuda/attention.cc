// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention.h"

#include <numbers>

#include "base/check.h"
#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/row_kernels.h"

namespace sysone {
namespace {

// Registers leave one block of the tensor-core kernel on a multiprocessor at a time; another one waits to begin as soon as that
// ends, as tiles take different times. More would cost time where they find nothing to do: a recorded pass has blocks for the
// fullest plan of its size.
constexpr int64_t kBlocksOfMultiprocessor = 2;
constexpr int64_t kPartAlignment = 128;  // of slots: lines of the cache

void CheckCall(const AttentionCall& call) {
  const AttentionShape& shape = call.shape;
  const CudaKvStore& store = *call.store;
  SYSONE_CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 &&
                   shape.head_dim <= kMaxAttentionDim && shape.scale > 0 &&
                   store.kv_heads == shape.kv_heads && store.head_dim == shape.head_dim &&
                   call.out.cols == shape.q_cols(),
               "attention shapes do not fit: %d heads of %d on %d of %d, %lld columns of results",
               shape.heads, shape.head_dim, store.kv_heads, store.head_dim,
               static_cast<long long>(call.out.cols));
  SYSONE_CHECK(!HasScales(store.encoding) && (call.scratch || !HasScales(call.out.encoding)),
               "keys and values have no scales, and results with scales need memory of their own");
}

// Of AttentionCall::parts: the counts come first.
int64_t CountBytes(int32_t tile_items) {
  const int64_t bytes = int64_t{kMostParts} * tile_items * int64_t{sizeof(int32_t)};
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

AttentionArguments ArgumentsOf(const AttentionCall& call) {
  const AttentionLayout layout(call.limits);
  const AttentionShape& shape = call.shape;
  const bool scaled = HasScales(call.out.encoding);
  const int32_t tile_items = TensorAttendItems(shape.heads, shape.kv_heads);
  return {.queries = call.qkv,
          .query_stride = shape.qkv_cols(),
          .keys = call.store->keys.data(),
          .values = call.store->values.data(),
          .kv_stride = shape.kv_cols(),
          .out = scaled ? call.scratch : call.out.values,
          .out_stride = scaled ? call.out.cols : call.out.stride,
          .heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .exponent_scale = shape.scale * std::numbers::log2e_v<float>,
          .tile_count = call.table,
          .tiles = reinterpret_cast<const DeviceTile*>(call.table + layout.tiles),
          .segments = reinterpret_cast<const DeviceSegment*>(call.table + layout.segments),
          .spans = reinterpret_cast<const DeviceSpan*>(call.table + layout.spans),
          .tile_items = tile_items,
          .slots = call.parts ? call.parts + CountBytes(tile_items) : nullptr,
          .parts_done = reinterpret_cast<int32_t*>(call.parts)};
}

void LaunchWith(const AttentionCall& call, bool tensor_cores, int32_t multiprocessors,
                cudaStream_t stream) {
  CheckCall(call);
  const AttentionArguments arguments = ArgumentsOf(call);
  const bool scaled = HasScales(call.out.encoding);
  const Encoding out = scaled ? Encoding::kFloat32 : call.out.encoding;
  const int64_t max_tiles = AttentionLayout(call.limits).max_tiles;
  const int64_t blocks = kBlocksOfMultiprocessor * multiprocessors;
  SYSONE_CHECK(!tensor_cores || !call.limits.chunks || call.parts,
               "rows that see many positions need memory for the parts of their results");
  if (tensor_cores)
    LaunchTensorAttend(arguments, out, max_tiles, blocks, stream);
  else
    LaunchSimpleAttend(arguments, call.store->encoding, out, max_tiles, blocks, stream);
  if (scaled) LaunchEncodeRows(call.scratch, call.rows, call.out, stream);
}

}  // namespace

bool AttendsOnTensorCores(const AttentionShape& shape, Encoding store) {
  return store == Encoding::kBfloat16 && shape.head_dim % 16 == 0 &&
         shape.head_dim <= kMaxAttentionDim;
}

int64_t AttentionPartBytes(const AttentionShape& shape, Encoding store, int32_t multiprocessors) {
  if (!AttendsOnTensorCores(shape, store)) return 0;
  const int32_t tile_items = TensorAttendItems(shape.heads, shape.kv_heads);
  const int64_t slots =
      int64_t{kMostParts} * tile_items + 2 * kBlocksOfMultiprocessor * multiprocessors;
  return CountBytes(tile_items) + slots * TensorAttendSlotBytes(shape.head_dim);
}

void LaunchAttention(const AttentionCall& call, int32_t multiprocessors, cudaStream_t stream) {
  LaunchWith(call, AttendsOnTensorCores(call.shape, call.store->encoding), multiprocessors, stream);
}

void LaunchSimpleAttention(const AttentionCall& call, int32_t multiprocessors,
                           cudaStream_t stream) {
  LaunchWith(call, false, multiprocessors, stream);
}

void PrepareAttention() { PrepareTensorAttend(); }

}  // namespace sysone
