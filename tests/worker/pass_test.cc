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
  EXPECT_EQ(Copy(pass.label_ids()), (std::vector<TokenId>{1, 2, 3, 1}));
  EXPECT_EQ(Copy(pass.label_reads()), (std::vector<int32_t>{0, 0, 0, 1}));
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

TEST(Pass, CountsTheRowsOfAnItem) {
  const JobTokens job = TwoQuestions();
  EXPECT_EQ(PassRows({&job, 0, 2}), 6);
  EXPECT_EQ(PassRows({&job, 1, 1}), 4);
}

}  // namespace
}  // namespace sysone
