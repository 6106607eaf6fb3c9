// Which part of a model a rank has under tensor parallelism. Pure.
//
//   q, k, v, gate, up   rows: whole heads, and columns of the feed-forward part; no rank needs another one's
//   o, down             the columns that belong to these: each rank has a share of every sum, and all add up theirs
//   embedding, head     rows of the vocabulary
//   norms               all of it, on every rank
//
// Shares need not be equal. Where there are at least as many key-value heads as ranks, a rank has whole ones with all their
// query heads; where there are fewer, several ranks have the same one, and share its query heads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/model_config.h"

namespace sysone {

// Whole numbers begin … end - 1.
struct ShardRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t count() const { return end - begin; }
};

struct Shard {
  ShardRange heads;         // query heads
  ShardRange kv_heads;      // heads.count() is a multiple of kv_heads.count()
  ShardRange intermediate;  // of the feed-forward part; begins at a multiple of kShardColumns
  ShardRange vocabulary;    // rows of embedding and head
};

// int8 weights have a scale for 32 columns (kernels/int8.h): a share of the columns begins where a group does, so that a
// group is the same whatever the number of ranks. (The columns of o are whole heads; sizes of 32 and more fit as well.)
inline constexpr int32_t kShardColumns = 32;

// The part of rank `rank` of `size`. kInvalidArgument when some rank would have no head or no columns.
Result<Shard> PlanShard(const ModelConfig& config, int32_t rank, int32_t size);

// The rank's heads; the scale is the model's.
AttentionShape ShardAttention(const ModelConfig& config, const Shard& shard);

}  // namespace sysone
