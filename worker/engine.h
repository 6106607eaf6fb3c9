// The loop of a worker group: takes jobs from the arena, packs them into passes, writes the results back into their slots.
// Only rank 0 runs it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/job_layout.h"
#include "shm_arena/rate_meter.h"
#include "worker/kv_cache.h"
#include "worker/pass.h"
#include "worker/pass_model.h"
#include "worker/pass_runner.h"
#include "worker/scheduler.h"

namespace sysone {

struct EngineOptions {
  GroupId group = GroupId::kNone;
  int32_t vocabulary = 0;  // ids of jobs lie below
  SchedulerLimits limits;
  int32_t kv_blocks = 0;        // of KvCache::kBlockRows rows each in the model's stores
  uint64_t kv_block_bytes = 0;  // of all layers, for metrics
  bool prefix_caching = true;   // false: nothing is found again by another request
};

// One thread. Everything given outlives it.
class Engine {
 public:
  Engine(Arena& arena, DoorbellListener& doorbell, PassModel& model, const EngineOptions& options);

  // Takes what is there, waiting for the first notice up to `wait_us` when there is nothing to do, and runs at most one pass.
  // Jobs that come meanwhile are taken by the next Step.
  void Step(int64_t wait_us);

  // Steps until `stop` is set, then until every job that was published to this group is answered.
  void Run(const std::atomic<bool>& stop);

  bool idle() const { return jobs_.empty(); }

 private:
  struct Job {
    SlotHandle slot;
    JobView view;
    JobTokens tokens;
    int64_t publish_us = 0;
    int64_t first_pass_us = 0;  // 0: still waiting
  };

  void TakeNoticed(int64_t wait_us);
  void Sweep();
  void Take(SlotHandle slot);
  void DropUnwanted();
  void RunPass();
  void WriteResults();
  void RecordPass(uint64_t busy_us, int64_t end_us);
  void Finish(uint64_t id, int64_t end_us);
  void FailJob(uint64_t id, Code code);

  Arena& arena_;
  DoorbellListener& doorbell_;
  const EngineOptions options_;
  KvCache cache_;
  uint64_t evictions_ = 0;  // reported so far
  PassRunner runner_;
  Scheduler scheduler_;
  RateMeter rate_;
  std::unordered_map<uint64_t, std::unique_ptr<Job>>
      jobs_;  // by slot index: taken and not yet answered
  int64_t next_sweep_us_ = 0;
  // Reused from pass to pass.
  Pass pass_;
  std::vector<SlotHandle> notices_;
  ScheduledPass scheduled_;
};

}  // namespace sysone
