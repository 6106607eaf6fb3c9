// Runs a scheduled pass on a model and keeps the hidden states it reads, by block of the cache, so
// that a prompt that comes again needs no pass.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "worker/kv_cache.h"
#include "worker/pass.h"
#include "worker/pass_model.h"
#include "worker/scheduler.h"

namespace sysone {

// One thread. `model` and `cache` outlive it.
class PassRunner {
 public:
  PassRunner(PassModel& model, KvCache& cache);

  // Runs the pass, with its stored states, and keeps its new ones. Call before Scheduler::PassDone.
  void Run(const Pass& pass, const ScheduledPass& scheduled);

  // Of the last Run: one a pass.label_ids(), and one a state where the pass wants summaries.
  std::span<const float> logits() const { return logits_; }
  std::span<const HeadSummary> summaries() const { return summaries_; }

 private:
  // Row `index` of `rows` [, hidden].
  std::vector<float>::iterator Row(std::vector<float>& rows, size_t index) const;
  void TakeStored(const Pass& pass);
  void KeepComputed(const Pass& pass, const ScheduledPass& scheduled);

  PassModel& model_;
  KvCache& cache_;
  const size_t hidden_;
  std::vector<float> kept_;    // [blocks, hidden]; the cache knows which are any good
  std::vector<float> states_;  // [states of the pass, hidden]
  std::vector<float> logits_;
  std::vector<HeadSummary> summaries_;
};

}  // namespace sysone
