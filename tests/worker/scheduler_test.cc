// SPDX-License-Identifier: Apache-2.0
#include "worker/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

namespace sysone {
namespace {

constexpr int64_t kNever = INT64_MAX;

// Jobs of given sizes over one pool of tokens that nobody looks at.
class Jobs {
 public:
  const JobTokens* Make(size_t prefix, const std::vector<size_t>& branches) {
    JobTokens job;
    job.prefix = Tokens(prefix);
    for (const size_t size : branches) job.branches.push_back({Tokens(size), Tokens(1)});
    jobs_.push_back(job);
    return &jobs_.back();
  }

 private:
  std::span<const TokenId> Tokens(size_t count) {
    return std::span<const TokenId>(pool_).first(count);
  }
  std::vector<TokenId> pool_ = std::vector<TokenId>(10000);
  std::deque<JobTokens> jobs_;
};

std::vector<uint64_t> Ids(const ScheduledPass& pass) {
  std::vector<uint64_t> ids;
  for (const auto& slice : pass.slices) ids.push_back(slice.id);
  return ids;
}

TEST(Scheduler, PacksJobsInOrderOfArrivalUntilThePassIsFull) {
  Jobs jobs;
  Scheduler scheduler({100, 10});
  for (uint64_t id = 1; id <= 4; ++id) scheduler.Add({id, jobs.Make(20, {10}), 0, kNever});
  EXPECT_EQ(Ids(scheduler.Next(0)), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(Ids(scheduler.Next(0)), (std::vector<uint64_t>{4}));
  EXPECT_TRUE(scheduler.Next(0).slices.empty());
}

TEST(Scheduler, TakesSmallerPriorityFirst) {
  Jobs jobs;
  Scheduler scheduler({30, 10});
  scheduler.Add({1, jobs.Make(20, {10}), 5, kNever});
  scheduler.Add({2, jobs.Make(20, {10}), -5, kNever});
  EXPECT_EQ(Ids(scheduler.Next(0)), (std::vector<uint64_t>{2}));
}

TEST(Scheduler, DoesNotLetSmallJobsOvertakeALargeOne) {
  Jobs jobs;
  Scheduler scheduler({100, 10});
  scheduler.Add({1, jobs.Make(0, {50}), 0, kNever});
  scheduler.Add({2, jobs.Make(0, {90}), 0, kNever});
  scheduler.Add({3, jobs.Make(0, {10}), 0, kNever});
  EXPECT_EQ(Ids(scheduler.Next(0)), (std::vector<uint64_t>{1}));
  EXPECT_EQ(Ids(scheduler.Next(0)), (std::vector<uint64_t>{2, 3}));
}

TEST(Scheduler, SpreadsAJobOverPassesByItsBranches) {
  Jobs jobs;
  Scheduler scheduler({100, 10});
  scheduler.Add({1, jobs.Make(60, {20, 20, 20, 20, 20}), 0, kNever});
  std::vector<int32_t> counts;
  bool last = false;
  while (!last) {
    const ScheduledPass pass = scheduler.Next(0);
    ASSERT_EQ(pass.slices.size(), 1u);
    EXPECT_LE(PassRows(pass.slices[0].item), 100);
    counts.push_back(pass.slices[0].item.branch_count);
    last = pass.slices[0].last;
  }
  EXPECT_EQ(counts, (std::vector<int32_t>{2, 2, 1}));
  EXPECT_TRUE(scheduler.empty());
}

TEST(Scheduler, BoundsTheReadsOfAPass) {
  Jobs jobs;
  Scheduler scheduler({1000, 3});
  scheduler.Add({1, jobs.Make(1, {1, 1}), 0, kNever});
  scheduler.Add({2, jobs.Make(1, {1, 1}), 0, kNever});
  const ScheduledPass pass = scheduler.Next(0);
  ASSERT_EQ(pass.slices.size(), 2u);
  EXPECT_EQ(pass.slices[1].item.branch_count, 1);
  EXPECT_FALSE(pass.slices[1].last);
}

TEST(Scheduler, HandsBackExpiredJobsBeforeAPassIsSpentOnThem) {
  Jobs jobs;
  Scheduler scheduler({100, 10});
  scheduler.Add({1, jobs.Make(0, {10}), 0, 1000});
  scheduler.Add({2, jobs.Make(0, {10}), 0, 1001});
  const ScheduledPass pass = scheduler.Next(1000);
  EXPECT_EQ(pass.expired, (std::vector<uint64_t>{1}));
  EXPECT_EQ(Ids(pass), (std::vector<uint64_t>{2}));
}

TEST(Scheduler, ForgetsARemovedJob) {
  Jobs jobs;
  Scheduler scheduler({100, 10});
  scheduler.Add({1, jobs.Make(0, {10}), 0, kNever});
  scheduler.Add({2, jobs.Make(0, {10}), 0, kNever});
  scheduler.Remove(1);
  scheduler.Remove(7);
  EXPECT_EQ(scheduler.ids(), (std::vector<uint64_t>{2}));
}

TEST(Scheduler, KnowsWhichJobsCanNeverRun) {
  Jobs jobs;
  const Scheduler scheduler({100, 10});
  EXPECT_TRUE(scheduler.Fits(*jobs.Make(60, {40, 40, 40})));
  EXPECT_FALSE(scheduler.Fits(*jobs.Make(60, {40, 41})));
}

// Random mixes: every branch of every job runs exactly once, no limit is broken, and no job waits
// for more passes than the work that was before it needs.
TEST(Scheduler, RunsEveryBranchExactlyOnceWithinTheLimits) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Jobs jobs;
    const SchedulerLimits limits{200, 8};
    Scheduler scheduler(limits);
    std::vector<const JobTokens*> added;
    std::vector<std::vector<int>> runs;
    for (uint64_t id = 0; id < 30; ++id) {
      std::vector<size_t> branches(1 + random() % 12);
      for (size_t& size : branches) size = 1 + random() % 60;
      added.push_back(jobs.Make(random() % 140, branches));
      runs.emplace_back(branches.size(), 0);
      scheduler.Add({id, added.back(), static_cast<int64_t>(random() % 3), kNever});
    }
    while (!scheduler.empty()) {
      const ScheduledPass pass = scheduler.Next(0);
      ASSERT_FALSE(pass.slices.empty());
      int64_t rows = 0;
      int32_t reads = 0;
      for (const auto& slice : pass.slices) {
        rows += PassRows(slice.item);
        reads += slice.item.branch_count;
        for (int32_t b = 0; b < slice.item.branch_count; ++b)
          ++runs[slice.id][static_cast<size_t>(slice.item.first_branch + b)];
      }
      ASSERT_LE(rows, limits.max_rows);
      ASSERT_LE(reads, limits.max_reads);
    }
    for (const auto& of_job : runs)
      for (const int count : of_job) ASSERT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace sysone
