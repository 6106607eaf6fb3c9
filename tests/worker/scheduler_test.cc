// SPDX-License-Identifier: Apache-2.0
#include "worker/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "tests/worker/fake_rows.h"

namespace sysone {
namespace {

constexpr int64_t kNever = INT64_MAX;
using Ids = std::vector<uint64_t>;

// A scheduler with its cache and rows that know what they hold.
class SchedulerTest : public ::testing::Test {
 protected:
  void Begin(const SchedulerLimits& limits, int32_t blocks = 1000, bool keep = true) {
    scheduler_.reset();
    cache_ = std::make_unique<KvCache>(blocks, keep);
    scheduler_ = std::make_unique<Scheduler>(limits, *cache_);
  }

  // Tokens that no other call gives.
  std::span<const TokenId> Fresh(size_t count) {
    std::vector<TokenId>& tokens = tokens_.emplace_back(count);
    for (TokenId& token : tokens) token = next_token_++;
    return tokens;
  }
  const JobTokens* Job(std::span<const TokenId> prefix,
                       const std::vector<std::span<const TokenId>>& branches) {
    JobTokens& job = jobs_.emplace_back();
    job.prefix = prefix;
    for (const auto& branch : branches) job.branches.push_back({branch, branch.first(1)});
    return &job;
  }
  const JobTokens* Job(size_t prefix, const std::vector<size_t>& branches) {
    std::vector<std::span<const TokenId>> spans;
    for (const size_t size : branches) spans.push_back(Fresh(size));
    return Job(Fresh(prefix), spans);
  }
  void Add(uint64_t id, const JobTokens* job, int64_t arrival_us = 0, int64_t priority = 0,
           int64_t deadline_us = kNever, uint64_t salt = 0) {
    by_id_[id] = job;
    scheduler_->Add({id, job, salt, priority, arrival_us, deadline_us});
  }

  // The next pass, computed: every read saw its own prompt and nothing else.
  void Step(int64_t now_us = 0) {
    scheduler_->Next(now_us, pass_, out_);
    const auto seen = rows_.Run(pass_, out_, *cache_);
    for (size_t i = 0; i < seen.size(); ++i) {
      const JobTokens& job = *by_id_.at(out_.reads[i].id);
      FakeRows::Prompt prompt(job.prefix.begin(), job.prefix.end());
      const auto& branch = job.branches[static_cast<size_t>(out_.reads[i].branch)].tokens;
      prompt.insert(prompt.end(), branch.begin(), branch.end());
      EXPECT_EQ(seen[i], prompt);
    }
    scheduler_->PassDone();
  }

  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  Pass pass_;
  ScheduledPass out_;
  FakeRows rows_;
  std::deque<std::vector<TokenId>> tokens_;
  std::deque<JobTokens> jobs_;
  std::map<uint64_t, const JobTokens*> by_id_;
  TokenId next_token_ = 1;
};

TEST_F(SchedulerTest, PacksJobsInOrderOfArrivalAndBeginsTheOneThatDoesNotFit) {
  Begin({100, 100, 10});
  for (uint64_t id = 1; id <= 4; ++id) Add(id, Job(20, {10}), static_cast<int64_t>(id));
  Step();
  EXPECT_EQ(out_.finished, (Ids{1, 2, 3}));
  EXPECT_EQ(out_.started, (Ids{1, 2, 3, 4}));
  EXPECT_EQ(pass_.rows(), 100);
  Step();
  EXPECT_EQ(out_.finished, (Ids{4}));
  EXPECT_EQ(out_.started, Ids{});
  EXPECT_EQ(pass_.rows(), 20);
  EXPECT_TRUE(scheduler_->empty());
  Step();
  EXPECT_EQ(pass_.rows(), 0);
}

TEST_F(SchedulerTest, AStepOfPriorityIsWorthASecondOfWaiting) {
  Begin({30, 30, 10});
  Add(1, Job(0, {30}), 1'500'000, 0);
  Add(2, Job(0, {30}), 0, 1);
  Add(3, Job(0, {30}), 0, 2);
  Add(4, Job(0, {30}), 3'000'000, -4);
  EXPECT_EQ(scheduler_->ids(), (Ids{4, 2, 1, 3}));
}

TEST_F(SchedulerTest, CutsALongPromptIntoPieces) {
  Begin({100, 50, 10});
  Add(1, Job(250, {30, 30}));
  std::vector<int32_t> rows;
  while (!scheduler_->empty()) {
    Step();
    rows.push_back(pass_.rows());
  }
  EXPECT_EQ(rows, (std::vector<int32_t>{100, 100, 100, 10}));
  EXPECT_EQ(out_.finished, Ids{1});
}

TEST_F(SchedulerTest, AShortJobDoesNotWaitForTheEndOfALongPrompt) {
  Begin({100, 60, 10});
  Add(1, Job(0, {1000}), 1);
  Add(2, Job(0, {1000}), 2);
  Step();
  EXPECT_EQ(pass_.rows(), 60);
  Add(3, Job(0, {20}), 3);
  Add(4, Job(0, {10}), 4);
  Step();
  EXPECT_EQ(out_.finished, (Ids{3, 4}));
  EXPECT_EQ(pass_.rows(), 60);
}

TEST_F(SchedulerTest, AStreamOfShortJobsLeavesALongOneHalfOfEveryPass) {
  Begin({100, 60, 10});
  Add(1, Job(0, {300}), 0);
  uint64_t id = 2;
  int passes = 0;
  bool ended = false;
  for (; !ended; ++passes) {
    ASSERT_LT(passes, 10);
    for (int i = 0; i < 3; ++i, ++id) Add(id, Job(0, {20}), static_cast<int64_t>(id));
    Step();
    ended = std::ranges::find(out_.finished, 1u) != out_.finished.end();
  }
}

TEST_F(SchedulerTest, BoundsTheReadsOfAPass) {
  Begin({1000, 1000, 3});
  Add(1, Job(1, {1, 1}), 1);
  Add(2, Job(1, {1, 1}), 2);
  Step();
  EXPECT_EQ(out_.reads.size(), 3u);
  EXPECT_EQ(out_.finished, Ids{1});
  Step();
  EXPECT_EQ(out_.finished, Ids{2});
}

TEST_F(SchedulerTest, HandsBackExpiredJobsBeforeAPassIsSpentOnThem) {
  Begin({40, 40, 10});
  Add(1, Job(0, {100}), 0, 0, 1000);
  Add(2, Job(0, {10}), 0, 0, 1001);
  Step(999);
  EXPECT_EQ(out_.expired, Ids{});
  EXPECT_EQ(out_.finished, Ids{2});
  Step(1000);
  EXPECT_EQ(out_.expired, Ids{1}) << "also between the pieces of its prompt";
  EXPECT_EQ(pass_.rows(), 0);
  EXPECT_EQ(cache_->blocks_in_use(), 0);
}

TEST_F(SchedulerTest, ForgetsARemovedJobAndWhatItHeld) {
  Begin({40, 40, 10});
  Add(1, Job(0, {100}));
  Add(2, Job(0, {100}));
  Step();
  EXPECT_GT(cache_->blocks_in_use(), 0);
  scheduler_->Remove(1);
  scheduler_->Remove(7);
  EXPECT_EQ(scheduler_->ids(), Ids{2});
  scheduler_->Remove(2);
  EXPECT_EQ(cache_->blocks_in_use(), 0);
}

TEST_F(SchedulerTest, KnowsWhichJobsCanNeverRun) {
  Begin({100, 100, 10}, 10);
  EXPECT_TRUE(scheduler_->Fits(*Job(40, {40, 40, 40})));
  EXPECT_TRUE(scheduler_->Fits(*Job(0, {80})));
  EXPECT_FALSE(scheduler_->Fits(*Job(40, {40, 41})));
}

TEST_F(SchedulerTest, ComputesASharedStateOnceWithinAPassAndAcrossPasses) {
  Begin({1000, 1000, 10});
  const auto state = Fresh(60);
  Add(1, Job(state, {Fresh(5), Fresh(6)}));
  Add(2, Job(state, {Fresh(7)}));
  Step();
  EXPECT_EQ(pass_.rows(), 60 + 5 + 6 + 7);
  std::vector<int32_t> cached;
  for (const auto& read : out_.reads) cached.push_back(read.cached_tokens);
  EXPECT_EQ(cached, (std::vector<int32_t>{0, 60, 60}));
  Add(3, Job(state, {Fresh(8)}));
  Add(4, Job(state, {Fresh(9)}), 0, 0, kNever, /*salt=*/1);
  Step();
  EXPECT_EQ(pass_.rows(), 8 + 60 + 9);
}

TEST_F(SchedulerTest, AWholeStoredJobTakesNoRowsAndDoesNotWaitForOthers) {
  Begin({20, 20, 10});
  const JobTokens* job = Job(10, {5, 5});
  Add(1, job);
  Step();
  Add(2, Job(0, {500}), 1);
  Add(3, job, 2);
  Step();
  EXPECT_EQ(pass_.rows(), 0);
  EXPECT_EQ(out_.finished, Ids{3});
  EXPECT_EQ(out_.reads[0].cached_tokens, 15);
  EXPECT_EQ(pass_.stored_blocks().size(), 2u);
}

TEST_F(SchedulerTest, APromptThatLiesInALongerOneTakesItsLastTokenOnly) {
  Begin({1000, 1000, 10});
  const auto tokens = Fresh(50);
  Add(1, Job({}, {tokens}));
  Step();
  Add(2, Job({}, {tokens.first(30)}));
  Step();
  EXPECT_EQ(pass_.rows(), 1);
  EXPECT_EQ(out_.reads[0].cached_tokens, 29);
  Add(3, Job({}, {tokens.first(30)}));
  Step();
  EXPECT_EQ(pass_.rows(), 0);
}

TEST_F(SchedulerTest, TwinsInOnePassAreComputedOnce) {
  Begin({1000, 1000, 10});
  const JobTokens* job = Job(20, {5});
  Add(1, job);
  Add(2, job);
  Step();
  EXPECT_EQ(pass_.rows(), 25);
  EXPECT_EQ(pass_.read_rows().size(), 1u);
  EXPECT_EQ(out_.finished, (Ids{1, 2}));
}

TEST_F(SchedulerTest, WithoutCachingJobsShareNothingButTheirOwnPrefix) {
  Begin({1000, 1000, 10}, 1000, false);
  const JobTokens* job = Job(20, {5, 5});
  Add(1, job);
  Add(2, job);
  Step();
  EXPECT_EQ(pass_.rows(), 60);
  Add(3, job);
  Step();
  EXPECT_EQ(pass_.rows(), 30);
  EXPECT_EQ(cache_->blocks_held(), 0);
}

TEST_F(SchedulerTest, ALongJobWaitsForRoomAndShortOnesPassItMeanwhile) {
  Begin({64, 64, 10}, 20);  // 160 rows
  Add(1, Job(0, {150}), 1);
  Add(2, Job(0, {150}), 2);
  Step();
  EXPECT_EQ(out_.started, Ids{1}) << "two of them would never end";
  scheduler_->Remove(1);
  Step();
  EXPECT_EQ(out_.started, Ids{2});
  Add(3, Job(0, {8}), 3);
  Step();
  EXPECT_EQ(out_.finished, Ids{3});
  while (!scheduler_->empty()) Step();
}

// Each job begins with all of the one before it and one token more, then goes its own way: the
// path to the last lies in a block a token.
TEST_F(SchedulerTest, APathThatLiesInTooManyBlocksBeginsAgain) {
  Begin({64, 64, 10}, 21);
  const auto common = Fresh(150);
  for (uint64_t id = 1; id <= 18; ++id) {
    std::vector<TokenId>& tokens =
        tokens_.emplace_back(common.begin(), common.begin() + static_cast<ptrdiff_t>(id));
    tokens.push_back(next_token_++);
    Add(id, Job({}, {tokens}), static_cast<int64_t>(id));
    while (!scheduler_->empty()) Step();
  }
  Add(100, Job({}, {common}));
  Add(101, Job({}, {Fresh(20)}));
  int passes = 0;
  for (; !scheduler_->empty(); ++passes) {
    ASSERT_LT(passes, 20);
    Step();
  }
  EXPECT_EQ(cache_->blocks_in_use(), 0);
}

}  // namespace
}  // namespace sysone
