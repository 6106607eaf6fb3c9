// SPDX-License-Identifier: Apache-2.0
#include "worker/batch_message.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sysone {
namespace {

template <class T>
std::vector<T> Copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

bool SameRun(const AttentionRun& a, const AttentionRun& b) {
  return a.first_row == b.first_row && a.rows == b.rows && a.first_position == b.first_position &&
         a.first_span == b.first_span && a.span_count == b.span_count;
}

// Two jobs of which one has two branches.
struct APass {
  std::vector<TokenId> prefix{5, 6, 7, 8, 9}, one{10, 11}, two{12}, alone{13, 14, 15},
      labels{1, 2, 3};
  JobTokens shared{prefix, {{one, labels}, {two, std::span(labels).first(2)}}, false};
  JobTokens single{{}, {{alone, std::span(labels).last(1)}}, true};
  Pass pass;
  APass() {
    const PassItem items[] = {{&shared, 0, 2}, {&single, 0, 1}};
    pass.Build(items);
  }
};

TEST(BatchMessage, RowsArriveAsTheyWereSent) {
  const APass sent;
  std::vector<std::byte> bytes{std::byte{1}};
  WriteBatch({BatchKind::kPass, 7, sent.pass.batch_rows(), {}, {}}, bytes);
  const auto got = ReadBatch(bytes);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->kind, BatchKind::kPass);
  EXPECT_EQ(got->number, 7u);
  const PassPlan plan = sent.pass.plan();
  EXPECT_EQ(Copy(got->rows.tokens), Copy(sent.pass.tokens()));
  EXPECT_EQ(Copy(got->rows.plan.positions), Copy(plan.positions));
  EXPECT_EQ(Copy(got->rows.plan.kv_rows), Copy(plan.kv_rows));
  EXPECT_EQ(Copy(got->rows.read_rows), Copy(sent.pass.read_rows()));
  EXPECT_EQ(got->rows.read_rows.size(), 3u);
  EXPECT_TRUE(std::ranges::equal(got->rows.plan.runs, plan.runs, SameRun));
  EXPECT_EQ(got->rows.plan.runs.size(), 4u);
  EXPECT_TRUE(
      std::ranges::equal(got->rows.plan.spans, plan.spans, [](const KvSpan& a, const KvSpan& b) {
        return a.first_row == b.first_row && a.count == b.count;
      }));
  EXPECT_EQ(got->reads.states, 0);
  EXPECT_TRUE(got->reads.label_ids.empty() && got->states.empty());
}

TEST(BatchMessage, ReadsArriveWithTheirStates) {
  const APass sent;
  const std::vector<float> states{1, -2, 3, 4, 5, 6.5f};
  std::vector<std::byte> bytes;
  WriteBatch({BatchKind::kPass, 8, {}, sent.pass.batch_reads(), states}, bytes);
  const auto got = ReadBatch(bytes);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got->kind, BatchKind::kPass);
  EXPECT_EQ(got->reads.states, 3);
  EXPECT_TRUE(got->reads.summarize_head);
  EXPECT_EQ(Copy(got->reads.label_ids), (std::vector<TokenId>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(Copy(got->reads.label_states), (std::vector<int32_t>{0, 0, 0, 1, 1, 2}));
  EXPECT_EQ(Copy(got->states), states);
  EXPECT_TRUE(got->rows.tokens.empty());
}

TEST(BatchMessage, IsRefusedWhenAnythingIsMissingOrTooMuch) {
  const APass sent;
  std::vector<std::byte> bytes;
  WriteBatch({BatchKind::kPass, 1, sent.pass.batch_rows(), {}, {}}, bytes);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(ReadBatch(std::span(bytes).first(size)).ok()) << size;
  std::vector<std::byte> longer = bytes;
  longer.resize(bytes.size() + 4);
  EXPECT_FALSE(ReadBatch(longer).ok());
  bytes[0] ^= std::byte{1};
  EXPECT_FALSE(ReadBatch(bytes).ok());
}

TEST(BatchMessage, AnyChangedByteOrLengthChangesTheFingerprint) {
  const APass sent;
  std::vector<std::byte> bytes;
  WriteBatch({BatchKind::kPass, 1, sent.pass.batch_rows(), {}, {}}, bytes);
  std::vector<uint64_t> seen{BatchFingerprint(bytes)};
  EXPECT_EQ(BatchFingerprint(std::vector(bytes)), seen[0]);
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0x80};
    seen.push_back(BatchFingerprint(bytes));
    byte ^= std::byte{0x80};
  }
  bytes.push_back(std::byte{0});
  seen.push_back(BatchFingerprint(bytes));
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
}

}  // namespace
}  // namespace sysone
