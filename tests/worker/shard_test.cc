// SPDX-License-Identifier: Apache-2.0
#include "worker/shard.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

ModelConfig Model(int32_t heads, int32_t kv_heads, int32_t intermediate, int32_t vocab = 1000) {
  ModelConfig config;
  config.hidden = 64;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = 32;
  config.intermediate = intermediate;
  config.vocab = vocab;
  return config;
}

Shard ShardOf(const ModelConfig& config, int32_t rank, int32_t size) {
  const auto shard = PlanShard(config, rank, size);
  EXPECT_TRUE(shard.ok()) << shard.status().message();
  return *shard;
}

struct Heads {
  int32_t heads, kv_heads;
};

TEST(Shard, EveryHeadColumnAndWordIsOnOneRankAndEveryKeyWithItsQueries) {
  for (const Heads shape : {Heads{1, 1},
                            {2, 1},
                            {4, 1},
                            {7, 1},
                            {4, 2},
                            {9, 3},
                            {12, 2},
                            {14, 2},
                            {16, 8},
                            {8, 8},
                            {40, 8}}) {
    for (const int32_t intermediate : {32, 64, 100, 192, 224, 304, 8960}) {
      const ModelConfig config = Model(shape.heads, shape.kv_heads, intermediate);
      const int32_t most = std::min(shape.heads, (intermediate + 31) / 32);
      for (int32_t size = 1; size <= most; ++size) {
        ShardRange before_heads, before_wide, before_words;
        for (int32_t rank = 0; rank < size; ++rank) {
          const Shard shard = ShardOf(config, rank, size);
          const auto where = ::testing::Message() << "rank " << rank << " of " << size << ", "
                                                  << shape.heads << " heads, " << shape.kv_heads;
          EXPECT_EQ(shard.heads.begin, before_heads.end) << where;
          EXPECT_EQ(shard.intermediate.begin, before_wide.end) << where;
          EXPECT_EQ(shard.vocabulary.begin, before_words.end) << where;
          EXPECT_GT(shard.heads.count(), 0) << where;
          EXPECT_GT(shard.kv_heads.count(), 0) << where;
          EXPECT_GT(shard.intermediate.count(), 0) << where;
          EXPECT_EQ(shard.intermediate.begin % 32, 0) << where;
          // Query head h of the model belongs to key h / group; a rank's own h to its own h / own group.
          const int32_t group = shape.heads / shape.kv_heads;
          ASSERT_EQ(shard.heads.count() % shard.kv_heads.count(), 0) << where;
          const int32_t own_group = shard.heads.count() / shard.kv_heads.count();
          for (int32_t h = 0; h < shard.heads.count(); ++h)
            EXPECT_EQ((shard.heads.begin + h) / group, shard.kv_heads.begin + h / own_group)
                << where;
          before_heads = shard.heads;
          before_wide = shard.intermediate;
          before_words = shard.vocabulary;
        }
        EXPECT_EQ(before_heads.end, shape.heads);
        EXPECT_EQ(before_wide.end, intermediate);
        EXPECT_EQ(before_words.end, config.vocab);
      }
    }
  }
}

TEST(Shard, SharesDifferByOneWholePartAtMost) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    const Shard shard = ShardOf(Model(10, 10, 32 * 6), rank, 4);
    EXPECT_TRUE(shard.heads.count() == 2 || shard.heads.count() == 3);
    EXPECT_TRUE(shard.intermediate.count() == 32 || shard.intermediate.count() == 64);
    EXPECT_EQ(shard.vocabulary.count(), 250);
  }
}

TEST(Shard, FewerKeyHeadsThanRanksAreOnSeveralOfThem) {
  const ModelConfig config = Model(12, 2, 256);
  for (int32_t rank = 0; rank < 4; ++rank) {
    const Shard shard = ShardOf(config, rank, 4);
    EXPECT_EQ(shard.heads.count(), 3);
    EXPECT_EQ(shard.kv_heads.begin, rank / 2);
    EXPECT_EQ(shard.kv_heads.count(), 1);
  }
}

TEST(Shard, MoreRanksThanHeadsOrColumnsAreRefusedWithBothNumbers) {
  const auto heads = PlanShard(Model(4, 2, 256), 0, 5);
  ASSERT_FALSE(heads.ok());
  EXPECT_EQ(heads.status().code(), Code::kInvalidArgument);
  EXPECT_NE(heads.status().message().find("--tensor-parallel-size 5"), std::string::npos);
  EXPECT_NE(heads.status().message().find("4 heads"), std::string::npos);
  EXPECT_FALSE(PlanShard(Model(8, 8, 64), 0, 3).ok());
  EXPECT_TRUE(PlanShard(Model(8, 8, 65), 0, 3).ok());
}

}  // namespace
}  // namespace sysone
