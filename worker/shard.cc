// SPDX-License-Identifier: Apache-2.0
#include "worker/shard.h"

#include <algorithm>
#include <cmath>

namespace sysone {
namespace {

// Part `index` of `parts` of 0 … count, as equal as whole numbers are.
ShardRange Share(int32_t count, int32_t index, int32_t parts) {
  const auto cut = [&](int32_t i) {
    return static_cast<int32_t>(static_cast<int64_t>(count) * i / parts);
  };
  return {cut(index), cut(index + 1)};
}

// Fewer key-value heads than ranks: each head has some ranks in a row, which share its query heads.
void ShareHeads(const ModelConfig& config, int32_t rank, int32_t size, Shard& shard) {
  const int32_t group = config.heads / config.kv_heads;
  for (int32_t kv = 0; kv < config.kv_heads; ++kv) {
    const ShardRange ranks = Share(size, kv, config.kv_heads);
    if (rank < ranks.begin || rank >= ranks.end) continue;
    const ShardRange queries = Share(group, rank - ranks.begin, ranks.count());
    shard.kv_heads = {kv, kv + 1};
    shard.heads = {kv * group + queries.begin, kv * group + queries.end};
  }
}

}  // namespace

Result<Shard> PlanShard(const ModelConfig& config, int32_t rank, int32_t size) {
  const int32_t columns = (config.intermediate + kShardColumns - 1) / kShardColumns;
  if (size > config.heads || size > columns)
    return Error(Code::kInvalidArgument,
                 "--tensor-parallel-size %d is too much for this model: it has %d heads and %d "
                 "times %d feed-forward columns, and every rank needs one of each",
                 size, config.heads, columns, kShardColumns);
  Shard shard;
  if (size <= config.kv_heads) {
    const int32_t group = config.heads / config.kv_heads;
    shard.kv_heads = Share(config.kv_heads, rank, size);
    shard.heads = {shard.kv_heads.begin * group, shard.kv_heads.end * group};
  } else {
    ShareHeads(config, rank, size, shard);
  }
  const ShardRange wide = Share(columns, rank, size);
  shard.intermediate = {wide.begin * kShardColumns,
                        std::min(wide.end * kShardColumns, config.intermediate)};
  shard.vocabulary = Share(config.vocab, rank, size);
  return shard;
}

AttentionShape ShardAttention(const ModelConfig& config, const Shard& shard) {
  return {shard.heads.count(), shard.kv_heads.count(), config.head_dim,
          1 / std::sqrt(static_cast<float>(config.head_dim))};
}

}  // namespace sysone
