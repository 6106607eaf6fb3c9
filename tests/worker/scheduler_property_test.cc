// Random streams of jobs through the scheduler, with a cache from ample to the least that is allowed.
// Whatever comes: every branch is read exactly once and saw exactly its own prompt, no limit is
// broken, equal jobs end in their order, and nobody waits longer than the work before him takes.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

#include "tests/worker/fake_rows.h"
#include "worker/scheduler.h"

namespace sysone {
namespace {

constexpr int64_t kNever = INT64_MAX;
constexpr int32_t kLongest = 120;  // tokens of a prompt

struct Setting {
  uint32_t seed;
  int32_t blocks;
  bool keep;
  SchedulerLimits limits;
  int32_t vocabulary;  // few tokens: prompts share much, at any place
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  uint32_t seed = 1;
  for (const int32_t blocks : {kLongest / KvCache::kBlockRows + 1, 40, 1000})
    for (const bool keep : {true, false})
      for (const SchedulerLimits& limits :
           {SchedulerLimits{64, 64, 8}, {200, 48, 5}, {7, 3, 2}, {1, 1, 1}})
        for (const int32_t vocabulary : {2, 1000})
          settings.push_back({seed++, blocks, keep, limits, vocabulary});
  return settings;
}

class Stream {
 public:
  explicit Stream(const Setting& setting)
      : setting_(setting),
        random_(setting.seed),
        cache_(setting.blocks, setting.keep),
        scheduler_(setting.limits, cache_) {}

  bool idle() const { return scheduler_.empty(); }

  void Add() {
    Waiting& job = jobs_.emplace_back();
    const size_t total = 2 + random_() % (kLongest - 2);
    const size_t prefix = random_() % total;
    job.prefix = Tokens(prefix);
    job.branches.resize(1 + random_() % 6);
    for (auto& branch : job.branches) branch = Tokens(1 + random_() % (total - prefix));
    job.salt = random_() % 4 == 0 ? 1 : 0;
    job.tokens.prefix = job.prefix;
    for (const auto& branch : job.branches) job.tokens.branches.push_back({branch, branch});
    job.reads.assign(job.branches.size(), 0);
    ASSERT_TRUE(scheduler_.Fits(job.tokens));
    const uint64_t id = jobs_.size() - 1;
    const int64_t priority = static_cast<int64_t>(random_() % 3) - 1;
    const int64_t deadline_us = random_() % 20 == 0 ? now_us_ + 40 : kNever;
    scheduler_.Add({id, &job.tokens, job.salt, priority, now_us_, deadline_us});
    waiting_.insert(id);
  }

  void RemoveOne() {
    if (waiting_.empty()) return;
    const auto at =
        std::next(waiting_.begin(), static_cast<ptrdiff_t>(random_() % waiting_.size()));
    scheduler_.Remove(*at);
    waiting_.erase(at);
  }

  void Step() {
    now_us_ += 5;
    const size_t several = waiting_.size();
    scheduler_.Next(now_us_, pass_, out_);
    for (const uint64_t id : out_.expired) ASSERT_EQ(waiting_.erase(id), 1u);
    ASSERT_TRUE(pass_.rows() > 0 || pass_.states() > 0 || waiting_.empty()) << "a pass for nothing";
    ASSERT_LE(pass_.rows(), several > 1
                                ? std::max(setting_.limits.shared_rows,
                                           waiting_.size() > 1 ? 0 : setting_.limits.max_rows)
                                : setting_.limits.max_rows);
    ASSERT_LE(std::ssize(out_.reads), setting_.limits.max_reads);
    ASSERT_LE(pass_.states(), setting_.limits.max_reads);
    const auto seen = rows_.Run(pass_, out_, cache_);
    int64_t computed = 0;
    for (size_t i = 0; i < seen.size(); ++i) {
      const ScheduledRead& read = out_.reads[i];
      Waiting& job = jobs_[read.id];
      ASSERT_TRUE(waiting_.contains(read.id));
      ++job.reads[static_cast<size_t>(read.branch)];
      FakeRows::Prompt prompt = job.prefix;
      const auto& branch = job.branches[static_cast<size_t>(read.branch)];
      prompt.insert(prompt.end(), branch.begin(), branch.end());
      ASSERT_EQ(seen[i], prompt);
      ASSERT_GE(read.cached_tokens, 0);
      ASSERT_LE(read.cached_tokens, std::ssize(prompt));
      computed += std::ssize(prompt) - read.cached_tokens;
    }
    scheduler_.PassDone();
    for (const uint64_t id : out_.finished) {
      ASSERT_EQ(waiting_.erase(id), 1u);
      for (const int reads : jobs_[id].reads) ASSERT_EQ(reads, 1);
    }
    if (waiting_.empty()) {
      ASSERT_EQ(cache_.blocks_in_use(), 0);
      ASSERT_TRUE(setting_.keep || cache_.blocks_held() == 0);
    }
  }

  uint32_t Random() { return static_cast<uint32_t>(random_()); }

 private:
  struct Waiting {
    std::vector<TokenId> prefix;
    std::vector<std::vector<TokenId>> branches;
    JobTokens tokens;
    uint64_t salt = 0;
    std::vector<int> reads;
  };

  // Often the beginning of an earlier prompt.
  std::vector<TokenId> Tokens(size_t count) {
    std::vector<TokenId> tokens;
    if (random_() % 3 > 0 && jobs_.size() > 1) {
      const Waiting& other = jobs_[random_() % (jobs_.size() - 1)];
      const auto& from = random_() % 2 == 0 ? other.prefix : other.branches[0];
      tokens.assign(from.begin(),
                    from.begin() + static_cast<ptrdiff_t>(std::min(from.size(), count)));
    }
    while (tokens.size() < count)
      tokens.push_back(
          static_cast<TokenId>(random_() % static_cast<uint32_t>(setting_.vocabulary)));
    return tokens;
  }

  const Setting setting_;
  std::mt19937 random_;
  KvCache cache_;
  Scheduler scheduler_;
  FakeRows rows_;
  Pass pass_;
  ScheduledPass out_;
  std::deque<Waiting> jobs_;
  std::set<uint64_t> waiting_;
  int64_t now_us_ = 0;
};

TEST(SchedulerProperty, EveryJobEndsExactlyOnceAndSeesItsOwnPromptAlone) {
  for (const Setting& setting : Settings()) {
    SCOPED_TRACE(::testing::Message() << "seed " << setting.seed);
    Stream stream(setting);
    for (int step = 0; step < 120; ++step) {
      for (uint32_t i = stream.Random() % 4; i > 0; --i) stream.Add();
      if (stream.Random() % 15 == 0) stream.RemoveOne();
      for (uint32_t i = stream.Random() % 5; i > 0; --i) {
        stream.Step();
        if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) return;
      }
    }
    for (int passes = 0; !stream.idle(); ++passes) {
      ASSERT_LT(passes, 200'000);
      stream.Step();
      if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) return;
    }
  }
}

// Half of each pass goes in order, so a job is through when the rows of all jobs before it and its
// own have passed through halves.
TEST(SchedulerProperty, NobodyWaitsLongerThanTheWorkBeforeHimTakes) {
  constexpr int64_t kRows = 64;
  std::mt19937 random(11);
  KvCache cache(4000, false);
  Scheduler scheduler({kRows, kRows, 16}, cache);
  Pass pass;
  ScheduledPass out;
  const std::vector<TokenId> pool(3000);
  std::deque<JobTokens> jobs;
  std::vector<int64_t> rows_through;  // of each job and all before it
  std::vector<int64_t> added_at;
  std::vector<uint64_t> ended_short;
  int64_t pass_number = 0;
  int64_t outstanding = 0;
  const auto rows_of = [&](uint64_t id) { return std::ssize(jobs[id].branches[0].tokens); };
  for (int step = 0; step < 3000 || !scheduler.empty(); ++step) {
    // As many rows as a pass takes on average, in bursts, short and long.
    while (step < 3000 && random() % 40 < 38) {
      const size_t size = random() % 12 == 0 ? 300 + random() % 2000 : 20;
      jobs.push_back({{}, {{std::span(pool).first(size), {}}}, false});
      const uint64_t id = jobs.size() - 1;
      scheduler.Add({id, &jobs.back(), 0, 0, static_cast<int64_t>(id), kNever});
      outstanding += static_cast<int64_t>(size);
      rows_through.push_back(outstanding);
      added_at.push_back(pass_number);
      if (outstanding > 3000) break;
    }
    scheduler.Next(0, pass, out);
    outstanding -= pass.rows();
    scheduler.PassDone();
    ++pass_number;
    for (const uint64_t id : out.finished) {
      EXPECT_LE(pass_number - added_at[id], rows_through[id] / (kRows / 2) + 1) << id;
      if (rows_of(id) == 20) ended_short.push_back(id);
    }
  }
  EXPECT_EQ(outstanding, 0);
  EXPECT_GT(ended_short.size(), 1000u);
  EXPECT_TRUE(std::ranges::is_sorted(ended_short)) << "equal jobs end in their order";
}

}  // namespace
}  // namespace sysone
