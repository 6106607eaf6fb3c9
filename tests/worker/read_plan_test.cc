// SPDX-License-Identifier: Apache-2.0
#include "worker/read_plan.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

// A prefix of four rows, then branches of two rows and of one.
const std::vector<int32_t> kPositions{0, 1, 2, 3, 4, 5, 4};
const std::vector<KvSpan> kSpans{{0, 4}, {0, 4}, {4, 2}, {0, 4}, {6, 1}};
const std::vector<AttentionRun> kRuns{{0, 4, 0, 0, 1}, {4, 2, 4, 1, 2}, {6, 1, 4, 3, 2}};
const PassPlan kPass{kPositions, kPositions, kRuns, kSpans};

TEST(ReadPlan, MakesEveryReadARunOfItsOwnThatSeesWhatTheRowSees) {
  const std::vector<int32_t> rows{6, 0, 5, 5};
  ReadPlan reads;
  for (int repeat = 0; repeat < 2; ++repeat) {  // one plan is used again and again
    reads.Build(kPass, rows);
    const PassPlan plan = reads.plan();
    EXPECT_EQ(reads.rows().data(), rows.data());
    ASSERT_EQ(plan.rows(), 4);
    ASSERT_EQ(plan.runs.size(), 4u);
    EXPECT_EQ(plan.spans.data(), kSpans.data());
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t row = rows[i];
      const AttentionRun& own = kRuns[row == 6 ? 2 : row == 0 ? 0 : 1];
      EXPECT_EQ(plan.runs[i].first_row, static_cast<int32_t>(i));
      EXPECT_EQ(plan.runs[i].rows, 1);
      EXPECT_EQ(plan.runs[i].first_position, kPositions[static_cast<size_t>(row)]);
      EXPECT_EQ(plan.positions[i], kPositions[static_cast<size_t>(row)]);
      EXPECT_EQ(plan.runs[i].first_span, own.first_span);
      EXPECT_EQ(plan.runs[i].span_count, own.span_count);
    }
  }
}

TEST(ReadPlan, OfAPassWithoutReadsIsEmpty) {
  ReadPlan reads;
  reads.Build(kPass, std::vector<int32_t>{2});
  reads.Build(kPass, {});
  EXPECT_EQ(reads.plan().rows(), 0);
  EXPECT_TRUE(reads.plan().runs.empty());
}

}  // namespace
}  // namespace sysone
