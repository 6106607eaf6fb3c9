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

Engine::Engine(Arena& arena, DoorbellListener& doorbell, ForwardFunction forward,
               const EngineOptions& options)
    : arena_(arena),
      doorbell_(doorbell),
      forward_(std::move(forward)),
      options_(options),
      scheduler_(options.limits) {}

void Engine::Run(const std::atomic<bool>& stop) {
  while (!stop.load(std::memory_order_relaxed)) Step(kSweepUs);
  // The state is set before the last sweep, so a job published by someone who still saw "ready" is found by it or by the
  // sweeps of the turns after it.
  arena_.board().SetGroupState(options_.group, GroupState::kDraining);
  Sweep();
  while (!idle()) Step(0);
}

void Engine::Step(int64_t wait_us) {
  TakeNoticed(scheduler_.empty() ? wait_us : 0);
  if (MonotonicUs() >= next_sweep_us_) Sweep();
  if (scheduler_.empty()) return;
  DropUnwanted();
  const ScheduledPass scheduled = scheduler_.Next(MonotonicUs());
  for (const uint64_t id : scheduled.expired) FailJob(id, Code::kDeadlineExceeded);
  if (!scheduled.slices.empty()) RunPass(scheduled);
}

void Engine::TakeNoticed(int64_t wait_us) {
  doorbell_.Wait(wait_us, kNoticesATurn, notices_);
  for (const SlotHandle slot : notices_) Take(slot);
}

void Engine::Sweep() {
  for (const SlotHandle slot : arena_.slots().ReadySlots(options_.group)) Take(slot);
  next_sweep_us_ = MonotonicUs() + kSweepUs;
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
    SYSONE_ERROR("slot %u: a branch is empty or too long for one pass", slot.index);
    arena_.slots().Fail(slot, readable ? Code::kTooLarge : Code::kInternal);
    return;
  }
  const int64_t deadline_us = info.deadline_us == 0 ? INT64_MAX : info.deadline_us;
  scheduler_.Add({slot.index, &job->tokens, info.priority, deadline_us});
  jobs_[slot.index] = std::move(job);
}

void Engine::DropUnwanted() {
  for (const uint64_t id : scheduler_.ids())
    if (!arena_.slots().Wanted(jobs_.at(id)->slot)) FailJob(id, Code::kCancelled);
}

void Engine::RunPass(const ScheduledPass& scheduled) {
  items_.clear();
  for (const ScheduledSlice& slice : scheduled.slices) items_.push_back(slice.item);
  pass_.Build(items_);
  logits_.resize(pass_.label_ids().size());
  summaries_.resize(pass_.read_rows().size());

  const int64_t begin_us = MonotonicUs();
  forward_(pass_, logits_, summaries_);
  const int64_t end_us = MonotonicUs();

  size_t read = 0;
  size_t label = 0;
  uint64_t finished = 0;
  for (const ScheduledSlice& slice : scheduled.slices) {
    Job& job = *jobs_.at(slice.id);
    if (job.first_pass_us == 0) job.first_pass_us = begin_us;
    WriteResults(job, slice.item, read, label);
    for (int32_t b = 0; b < slice.item.branch_count; ++b) {
      label += job.tokens.branches[static_cast<size_t>(slice.item.first_branch + b)].labels.size();
      ++read;
    }
    if (slice.last) {
      Finish(slice.id, end_us);
      ++finished;
    }
  }
  arena_.board().RecordBatch(options_.group, finished, static_cast<uint64_t>(pass_.rows()),
                             static_cast<uint64_t>(end_us - begin_us));
}

void Engine::WriteResults(Job& job, const PassItem& item, size_t first_read,
                          size_t first_label) const {
  size_t label = first_label;
  for (int32_t b = 0; b < item.branch_count; ++b) {
    const int32_t sequence = item.first_branch + b;
    const std::span<float> out = job.view.label_logits(sequence);
    std::copy_n(logits_.begin() + static_cast<ptrdiff_t>(label), out.size(), out.begin());
    label += out.size();
    SequenceResult& result = job.view.result(sequence);
    result = {0, 0, -1, 0};
    if (job.tokens.summarize_head) {
      const HeadSummary& summary = summaries_[first_read + static_cast<size_t>(b)];
      result.log_sum_exp = summary.log_sum_exp;
      result.argmax_token = summary.argmax;
    }
  }
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
  // The views point into the slot's payload, which may be another job's the moment the slot is complete.
  const SlotHandle slot = job.slot;
  jobs_.erase(at);
  arena_.slots().Complete(slot);
}

void Engine::FailJob(uint64_t id, Code code) {
  scheduler_.Remove(id);
  const SlotHandle slot = jobs_.at(id)->slot;
  jobs_.erase(id);
  arena_.slots().Fail(slot, code);
}

}  // namespace sysone
