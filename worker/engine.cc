// SPDX-License-Identifier: Apache-2.0
#include "worker/engine.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace sysone {
namespace {

// A lost notice costs its job at most this much; an idle worker looks over its slots this often.
constexpr int64_t kSweepUs = 50'000;
// More notices than one pass can hold are left in the socket for the next turn.
constexpr size_t kNoticesATurn = 512;

JobTokens TokensOf(const JobView& view) {
  JobTokens tokens;
  tokens.prefix = view.prefix();
  tokens.branches.reserve(static_cast<size_t>(view.sequence_count()));
  for (int32_t s = 0; s < view.sequence_count(); ++s)
    tokens.branches.push_back({view.suffix(s), view.labels(s)});
  tokens.summarize_head = (view.flags() & kJobWantsDiagnostics) != 0;
  return tokens;
}

}  // namespace

Engine::Engine(Arena& arena, DoorbellListener& doorbell, PassModel& model,
               const EngineOptions& options)
    : arena_(arena),
      doorbell_(doorbell),
      options_(options),
      cache_(options.kv_blocks, options.prefix_caching),
      runner_(model, cache_),
      scheduler_(options.limits, cache_) {}

void Engine::Run(const std::atomic<bool>& stop) {
  while (!stop.load(std::memory_order_relaxed)) Step(kSweepUs);
  // The state is set before the last sweep, so a job published by someone who still saw "ready" is found by it or by the
  // sweeps of the turns after it.
  arena_.board().SetGroupState(options_.group, GroupState::kDraining);
  Sweep();
  while (!idle()) Step(0);
}

void Engine::Step(int64_t wait_us) {
  // Before waiting, while nobody waits for it: behind a notice it would hold up the job that came.
  if (MonotonicUs() >= next_sweep_us_) Sweep();
  TakeNoticed(scheduler_.empty() ? wait_us : 0);
  if (scheduler_.empty()) return;
  DropUnwanted();
  scheduler_.Next(MonotonicUs(), pass_, scheduled_);
  for (const uint64_t id : scheduled_.expired) FailJob(id, Code::kDeadlineExceeded);
  if (pass_.rows() > 0 || pass_.states() > 0) RunPass();
}

void Engine::TakeNoticed(int64_t wait_us) {
  doorbell_.Wait(wait_us, kNoticesATurn, notices_);
  for (const SlotHandle slot : notices_) Take(slot);
}

void Engine::Sweep() {
  for (const SlotHandle slot : arena_.slots().ReadySlots(options_.group)) Take(slot);
  const int64_t now_us = MonotonicUs();
  arena_.board().SetRate(options_.group, rate_.Rate(now_us));  // it gets old without passes
  next_sweep_us_ = now_us + kSweepUs;
}

void Engine::Take(SlotHandle slot) {
  if (!arena_.slots().Take(slot, options_.group)) return;  // a stale or repeated notice
  SlotInfo info;
  if (!arena_.slots().ReadInfo(slot, &info)) return;
  auto view = JobView::Open(arena_.slots().payload(slot), options_.vocabulary);
  if (!view.ok()) {
    SYSONE_ERROR("slot %u holds no valid job: %s", slot.index, view.status().message().c_str());
    arena_.slots().Fail(slot, Code::kInternal);
    return;
  }
  auto job = std::make_unique<Job>(Job{slot, *view, TokensOf(*view), info.publish_us});
  const bool readable =
      std::all_of(job->tokens.branches.begin(), job->tokens.branches.end(),
                  [](const BranchTokens& branch) { return !branch.tokens.empty(); });
  if (!readable || !scheduler_.Fits(job->tokens)) {
    SYSONE_ERROR("slot %u: a branch is empty, or longer than the key-value memory", slot.index);
    arena_.slots().Fail(slot, readable ? Code::kTooLarge : Code::kInternal);
    return;
  }
  const int64_t deadline_us = info.deadline_us == 0 ? INT64_MAX : info.deadline_us;
  scheduler_.Add({slot.index, &job->tokens, view->cache_salt_hash(), info.priority, info.publish_us,
                  deadline_us});
  jobs_[slot.index] = std::move(job);
}

void Engine::DropUnwanted() {
  for (const uint64_t id : scheduler_.ids())
    if (!arena_.slots().Wanted(jobs_.at(id)->slot)) FailJob(id, Code::kCancelled);
}

void Engine::RunPass() {
  const int64_t begin_us = MonotonicUs();
  for (const uint64_t id : scheduled_.started) jobs_.at(id)->first_pass_us = begin_us;
  runner_.Run(pass_, scheduled_);
  WriteResults();
  const int64_t end_us = MonotonicUs();
  for (const uint64_t id : scheduled_.finished) Finish(id, end_us);
  scheduler_.PassDone();
  RecordPass(static_cast<uint64_t>(end_us - begin_us), end_us);
}

void Engine::WriteResults() {
  Metrics metrics = arena_.metrics();
  size_t label = 0;
  for (size_t i = 0; i < scheduled_.reads.size(); ++i) {
    const ScheduledRead& read = scheduled_.reads[i];
    const Job& job = *jobs_.at(read.id);
    const std::span<float> out = job.view.label_logits(read.branch);
    std::copy_n(runner_.logits().begin() + static_cast<ptrdiff_t>(label), out.size(), out.begin());
    label += out.size();
    SequenceResult& result = job.view.result(read.branch);
    result = {0, 0, -1, read.cached_tokens};
    if (job.tokens.summarize_head) {
      const HeadSummary& summary = runner_.summaries()[static_cast<size_t>(pass_.read_states()[i])];
      result.log_sum_exp = summary.log_sum_exp;
      result.argmax_token = summary.argmax;
    }
    metrics.Add(Counter::kPrefixCacheQueries,
                static_cast<uint64_t>(job.view.sequence_tokens(read.branch)));
    metrics.Add(Counter::kPrefixCacheHits, static_cast<uint64_t>(read.cached_tokens));
  }
}

void Engine::RecordPass(uint64_t busy_us, int64_t end_us) {
  const auto tokens = static_cast<uint64_t>(pass_.rows());
  rate_.Record(tokens, busy_us, end_us);
  arena_.board().RecordBatch(options_.group, scheduled_.finished.size(), tokens, busy_us);
  arena_.board().SetRate(options_.group, rate_.Rate(end_us));
  arena_.board().RecordKv(
      options_.group,
      {static_cast<uint32_t>(cache_.blocks_in_use()), static_cast<uint32_t>(cache_.blocks_held()),
       static_cast<uint32_t>(cache_.block_count()), options_.kv_block_bytes});
  arena_.metrics().Add(Counter::kKvEvictions, cache_.evictions() - evictions_);
  evictions_ = cache_.evictions();
}

void Engine::Finish(uint64_t id, int64_t end_us) {
  const auto at = jobs_.find(id);
  Job& job = *at->second;
  const int64_t queue_us = job.first_pass_us - job.publish_us;
  const int64_t pass_us = end_us - job.first_pass_us;
  job.view.SetTimes(queue_us, pass_us);
  Metrics metrics = arena_.metrics();
  metrics.Observe(Histogram::kQueueTime, static_cast<uint64_t>(std::max<int64_t>(queue_us, 0)));
  metrics.Observe(Histogram::kPassTime, static_cast<uint64_t>(pass_us));
  // From here on the slot's payload, into which the job's views point, may be another job's.
  arena_.slots().Complete(job.slot);
  jobs_.erase(at);
}

void Engine::FailJob(uint64_t id, Code code) {
  scheduler_.Remove(id);
  const SlotHandle slot = jobs_.at(id)->slot;
  jobs_.erase(id);
  arena_.slots().Fail(slot, code);
}

}  // namespace sysone
