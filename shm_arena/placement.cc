// The arithmetic of placement and admission.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/placement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace sysone {
namespace {

bool CanTake(const GroupLoad& group, const JobDemand& job) {
  return group.state == GroupState::kReady && job.longest_sequence <= group.max_model_len;
}

bool RateKnown(const GroupLoad& group) { return group.rate.tokens_per_second > 0; }

// Of the ready groups whose rates are known; both 1 when there is none, so that times are token counts.
struct KnownRates {
  double mean = 1;
  GroupRate fastest = {1, 1};
};

KnownRates KnownRatesOf(const BoardSnapshot& board) {
  double sum = 0;
  int known = 0;
  GroupRate fastest;
  for (uint32_t g = 0; g < board.group_count; ++g) {
    const GroupLoad& group = board.groups[g];
    if (group.state != GroupState::kReady || !RateKnown(group)) continue;
    sum += group.rate.tokens_per_second;
    ++known;
    if (group.rate.tokens_per_second > fastest.tokens_per_second) fastest = group.rate;
  }
  if (known == 0) return {};
  return {sum / known, fastest};
}

// What a group's time is reckoned with, in tokens a second: see kEqualRateShare and PlaceJob.
double RateOf(const GroupLoad& group, const KnownRates& known) {
  double rate = known.mean;
  if (RateKnown(group)) {
    const double smaller_by =
        static_cast<double>(known.fastest.tokens_a_pass) / group.rate.tokens_a_pass;
    rate = group.rate.tokens_per_second * std::sqrt(std::max(1.0, smaller_by));
  }
  const double fastest = known.fastest.tokens_per_second;
  return rate >= kEqualRateShare * fastest ? fastest : rate;
}

std::optional<GroupId> Place(const BoardSnapshot& board, const JobDemand& job, uint32_t rotation,
                             GroupId excluded) {
  const KnownRates known = KnownRatesOf(board);
  struct Candidate {
    GroupId group;
    double rate;
    double finish;  // seconds, or tokens when no rate is known
    uint32_t held;
  };
  std::array<Candidate, kMaxGroups> candidates;
  uint32_t count = 0;
  for (uint32_t g = 0; g < board.group_count; ++g) {
    const GroupLoad& group = board.groups[g];
    if (!CanTake(group, job) || static_cast<GroupId>(g) == excluded) continue;
    const double rate = RateOf(group, known);
    const double work =
        static_cast<double>(std::max<int64_t>(group.outstanding_tokens, 0) + job.Work(GroupId{g}));
    candidates[count++] = {GroupId{g}, rate, work / rate, job.held[g]};
  }
  if (count == 0) return std::nullopt;
  const auto end = candidates.begin() + count;
  const Candidate best =
      *std::min_element(candidates.begin(), end,
                        [](const Candidate& a, const Candidate& b) { return a.finish < b.finish; });
  const double close_enough =
      best.finish + std::max(best.finish * kNearEqualShare, kNearEqualTokens / best.rate);
  uint32_t most_held = 0;
  for (const Candidate& candidate : std::span(candidates.begin(), end))
    if (candidate.finish <= close_enough) most_held = std::max(most_held, candidate.held);
  const auto equals_end =
      std::stable_partition(candidates.begin(), end, [&](const Candidate& candidate) {
        return candidate.finish <= close_enough && candidate.held == most_held;
      });
  return candidates[rotation % static_cast<uint32_t>(equals_end - candidates.begin())].group;
}

}  // namespace

std::optional<GroupId> PlaceJob(const BoardSnapshot& board, const JobDemand& job, uint32_t rotation,
                                GroupId excluded) {
  std::optional<GroupId> group = Place(board, job, rotation, excluded);
  if (!group && excluded != GroupId::kNone) group = Place(board, job, rotation, GroupId::kNone);
  return group;
}

int64_t ExpectedWaitUs(const GroupLoad& load) {
  if (!RateKnown(load) || load.outstanding_tokens <= 0) return 0;
  const double us = static_cast<double>(load.outstanding_tokens) * 1e6 /
                    static_cast<double>(load.rate.tokens_per_second);
  return us < 1e15 ? static_cast<int64_t>(us) : int64_t{1'000'000'000'000'000};
}

AdmissionVerdict AdmitJob(const BoardSnapshot& board, GroupId group, const JobDemand& job,
                          int64_t now_us, int64_t deadline_us, const AdmissionLimits& limits) {
  int64_t jobs = 0;
  int64_t tokens = 0;
  double rate = 0;
  for (uint32_t g = 0; g < board.group_count; ++g) {
    jobs += board.groups[g].outstanding_jobs;
    tokens += board.groups[g].outstanding_tokens;
    if (board.groups[g].state == GroupState::kReady) rate += board.groups[g].rate.tokens_per_second;
  }
  // What to tell a refused client when no rate is known.
  constexpr int64_t kDefaultRetryUs = 1'000'000;
  AdmissionVerdict verdict;
  if (limits.max_queued_requests > 0 && jobs >= limits.max_queued_requests) {
    verdict.status = Error(
        Code::kUnavailable, "%lld requests are waiting, the limit (--max-num-queued-reqs) is %lld",
        static_cast<long long>(jobs), static_cast<long long>(limits.max_queued_requests));
    // Room for one: the mean job has to end.
    const double mean_tokens = static_cast<double>(tokens) / static_cast<double>(jobs);
    verdict.retry_after_us =
        rate > 0 ? static_cast<int64_t>(mean_tokens * 1e6 / rate) + 1 : kDefaultRetryUs;
    return verdict;
  }
  // A job that is larger than the bound by itself passes when nothing else waits; else it could
  // never run.
  if (limits.max_queued_tokens > 0 && tokens > 0 &&
      tokens + job.Work(group) > limits.max_queued_tokens) {
    verdict.status = Error(Code::kUnavailable,
                           "%lld tokens are waiting, with %lld more the limit "
                           "(--max-num-queued-tokens) of %lld is passed",
                           static_cast<long long>(tokens), static_cast<long long>(job.Work(group)),
                           static_cast<long long>(limits.max_queued_tokens));
    const double over =
        static_cast<double>(std::min(tokens, tokens + job.Work(group) - limits.max_queued_tokens));
    verdict.retry_after_us =
        rate > 0 ? static_cast<int64_t>(over * 1e6 / rate) + 1 : kDefaultRetryUs;
    return verdict;
  }
  if (deadline_us == 0) return verdict;
  const int64_t wait_us = ExpectedWaitUs(board.groups[Index(group)]);
  if (now_us + wait_us > deadline_us) {
    verdict.refused_by_deadline = true;
    verdict.retry_after_us = std::max<int64_t>(now_us + wait_us - deadline_us, 1);
    verdict.status =
        Error(Code::kUnavailable, "the wait would be about %lld ms, the deadline is in %lld ms",
              static_cast<long long>(wait_us / 1'000),
              static_cast<long long>((deadline_us - now_us) / 1'000));
  }
  return verdict;
}

}  // namespace sysone
