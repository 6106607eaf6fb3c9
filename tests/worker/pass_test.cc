// SPDX-License-Identifier: Apache-2.0
#include "worker/pass.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

const std::vector<TokenId> kPrefix{10, 11, 12};
const std::vector<TokenId> kFirst{20, 21};
const std::vector<TokenId> kSecond{30};
const std::vector<TokenId> kLabels{1, 2, 3};

template <class T>
std::vector<T> Copy(std::span<const T> values) {
  return {values.begin(), values.end()};
}

JobTokens TwoQuestions() {
  return {kPrefix, {{kFirst, kLabels}, {kSecond, {kLabels.data(), 1}}}, false};
}

TEST(Pass, PutsThePrefixOnceAndEachBranchBehindIt) {
  const JobTokens job = TwoQuestions();
  Pass pass;
  pass.Build(std::vector<PassItem>{{&job, 0, 2}});
  EXPECT_EQ(Copy(pass.tokens()), (std::vector<TokenId>{10, 11, 12, 20, 21, 30}));
  EXPECT_EQ(Copy(pass.plan().positions), (std::vector<int32_t>{0, 1, 2, 3, 4, 3}));
  EXPECT_EQ(Copy(pass.read_rows()), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(Copy(pass.read_states()), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Copy(pass.label_ids()), (std::vector<TokenId>{1, 2, 3, 1}));
  EXPECT_EQ(Copy(pass.label_states()), (std::vector<int32_t>{0, 0, 0, 1}));
}

TEST(Pass, LetsABranchSeeThePrefixAndItselfOnly) {
  const JobTokens job = TwoQuestions();
  Pass pass;
  pass.Build(std::vector<PassItem>{{&job, 0, 2}});
  const PassPlan plan = pass.plan();
  ASSERT_EQ(plan.runs.size(), 3u);
  const AttentionRun& second = plan.runs[2];
  EXPECT_EQ(second.first_row, 5);
  EXPECT_EQ(second.first_position, 3);
  ASSERT_EQ(second.span_count, 2);
  const KvSpan& prefix = plan.spans[static_cast<size_t>(second.first_span)];
  const KvSpan& own = plan.spans[static_cast<size_t>(second.first_span + 1)];
  EXPECT_EQ(prefix.first_row, 0);
  EXPECT_EQ(prefix.count, 3);
  EXPECT_EQ(own.first_row, 5);
  EXPECT_EQ(own.count, 1);
}

TEST(Pass, RunsOfEveryPassCoverItsRowsInOrderAndSpansEndAtTheRun) {
  const JobTokens with_prefix = TwoQuestions();
  const JobTokens without_prefix{{}, {{kFirst, kLabels}}, true};
  Pass pass;
  for (int repeat = 0; repeat < 2; ++repeat) {  // a Pass is used again and again
    pass.Build(
        std::vector<PassItem>{{&with_prefix, 1, 1}, {&without_prefix, 0, 1}, {&with_prefix, 0, 2}});
    const PassPlan plan = pass.plan();
    int32_t row = 0;
    for (const AttentionRun& run : plan.runs) {
      EXPECT_EQ(run.first_row, row);
      row += run.rows;
      int32_t context = 0;
      for (int32_t s = 0; s < run.span_count; ++s)
        context += plan.spans[static_cast<size_t>(run.first_span + s)].count;
      EXPECT_EQ(context, run.first_position + run.rows);
    }
    EXPECT_EQ(row, pass.rows());
    EXPECT_EQ(row, 4 + 2 + 6);
    EXPECT_TRUE(pass.summarize_head());
  }
}

TEST(Pass, NumbersStatesByRowAndStoredOnesBehindThem) {
  const std::vector<TokenId> tokens{1, 2, 3, 4};
  const std::vector<int32_t> kv_rows{40, 41, 42, 43};
  const std::vector<KvSpan> path{{40, 4}};
  const BranchTokens branch{tokens, {kLabels.data(), 1}};
  Pass pass;
  for (int repeat = 0; repeat < 2; ++repeat) {
    pass.Clear();
    EXPECT_EQ(pass.RowComputing(41), -1);
    EXPECT_EQ(pass.RowComputing(4000), -1);
    pass.AddRun(tokens, 0, kv_rows, path);
    EXPECT_EQ(pass.RowComputing(41), 1);
    EXPECT_EQ(pass.RowComputing(39), -1);
    pass.AddRead(3, branch, false);
    pass.AddStoredRead(7, branch, false);
    pass.AddRead(1, branch, false);
    pass.AddRead(3, branch, false);  // two questions of the same words
    pass.AddStoredRead(5, branch, false);
    pass.Finish();
    EXPECT_EQ(Copy(pass.read_rows()), (std::vector<int32_t>{1, 3}));
    EXPECT_EQ(Copy(pass.stored_blocks()), (std::vector<int32_t>{7, 5}));
    EXPECT_EQ(pass.states(), 4);
    EXPECT_EQ(Copy(pass.read_states()), (std::vector<int32_t>{1, 2, 0, 1, 3}));
    EXPECT_EQ(Copy(pass.label_states()), (std::vector<int32_t>{1, 2, 0, 1, 3}));
    EXPECT_FALSE(pass.summarize_head());
  }
}

}  // namespace
}  // namespace sysone
