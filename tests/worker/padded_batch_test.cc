// A batch grows to the size that a backend wants, and says the same of the rows that it had.
// SPDX-License-Identifier: Apache-2.0
#include "worker/padded_batch.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

const std::vector<TokenId> kTokens{5, 6, 7};
const std::vector<int32_t> kPositions{0, 1, 2}, kKvRows{8, 9, 10}, kReadRows{2}, kReadPositions{2};
const std::vector<AttentionRun> kRuns{{0, 3, 0, 0, 1}}, kReadRuns{{0, 1, 2, 0, 1}};
const std::vector<KvSpan> kSpans{{8, 3}};
const std::vector<int32_t> kLabelReads{0, 0};
const std::vector<TokenId> kLabelIds{4, 9};

PassInputs Inputs() {
  return {kTokens,     {kPositions, kKvRows, kRuns, kSpans},
          kReadRows,   {kReadPositions, {}, kReadRuns, kSpans},
          kLabelReads, kLabelIds};
}

template <class T>
std::vector<std::remove_const_t<T>> Copy(std::span<T> values) {
  return {values.begin(), values.end()};
}

TEST(PaddedBatch, AddsRowsAndReadsThatNobodyNeeds) {
  PaddedBatch batch;
  const PassInputs padded = batch.Pad(Inputs(), 5, 2, 3);
  EXPECT_EQ(padded.plan.rows(), 5);
  EXPECT_EQ(Copy(padded.tokens), (std::vector<TokenId>{5, 6, 7, kNoToken, kNoToken}));
  EXPECT_EQ(Copy(padded.plan.positions), (std::vector<int32_t>{0, 1, 2, 0, 0}));
  EXPECT_EQ(Copy(padded.plan.kv_rows), (std::vector<int32_t>{8, 9, 10, kNoKvRow, kNoKvRow}));
  EXPECT_EQ(padded.read_plan.rows(), 2);
  EXPECT_EQ(Copy(padded.read_rows), (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(Copy(padded.read_plan.positions), (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(Copy(padded.label_reads), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(Copy(padded.label_ids), (std::vector<TokenId>{4, 9, kNoToken}));
  // No run has the new rows.
  EXPECT_EQ(padded.plan.runs.data(), kRuns.data());
  EXPECT_EQ(padded.plan.runs.size(), kRuns.size());
  EXPECT_EQ(padded.read_plan.runs.data(), kReadRuns.data());
  EXPECT_EQ(padded.plan.spans.data(), kSpans.data());
}

TEST(PaddedBatch, PassesOnWhatNeedNotGrow) {
  PaddedBatch batch;
  const PassInputs padded = batch.Pad(Inputs(), 3, 1, 2);
  EXPECT_EQ(padded.tokens.data(), kTokens.data());
  EXPECT_EQ(padded.plan.kv_rows.data(), kKvRows.data());
  EXPECT_EQ(padded.read_rows.data(), kReadRows.data());
}

TEST(PaddedBatch, ForgetsTheBatchBefore) {
  PaddedBatch batch;
  batch.Pad(Inputs(), 9, 4, 8);
  const PassInputs padded = batch.Pad(Inputs(), 4, 2, 3);
  EXPECT_EQ(Copy(padded.tokens), (std::vector<TokenId>{5, 6, 7, kNoToken}));
  EXPECT_EQ(Copy(padded.read_rows), (std::vector<int32_t>{2, 0}));
}

TEST(PaddedBatch, ResultsGoThroughRoomOfItsOwnWhereItHasMoreOfThem) {
  PaddedBatch batch;
  std::vector<float> logits(2), states(3);
  const PassResults wanted{logits, states};
  EXPECT_EQ(batch.Room(wanted, 2, 3).label_logits.data(), logits.data());
  EXPECT_EQ(batch.Room(wanted, 2, 3).states.data(), states.data());
  const PassResults room = batch.Room(wanted, 5, 6);
  ASSERT_EQ(room.label_logits.size(), 5u);
  ASSERT_EQ(room.states.size(), 6u);
  for (size_t i = 0; i < 5; ++i) room.label_logits[i] = static_cast<float>(i + 1);
  for (size_t i = 0; i < 6; ++i) room.states[i] = static_cast<float>(i + 10);
  batch.Return(room, wanted);
  EXPECT_EQ(logits, (std::vector<float>{1, 2}));
  EXPECT_EQ(states, (std::vector<float>{10, 11, 12}));
}

TEST(PaddedBatchDeathTest, RefusesToShrinkABatch) {
  PaddedBatch batch;
  EXPECT_DEATH(batch.Pad(Inputs(), 2, 1, 2), "3 values for a pass of 2");
}

}  // namespace
}  // namespace sysone
