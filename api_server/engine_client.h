// Puts a job into the arena and brings its results back: admission, placement on the least-loaded group, the wait, and a new
// placement when the group dies meanwhile. The job's bytes are written once, into the slot that the worker reads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "api_server/scoring.h"
#include "api_server/strategy.h"
#include "base/status.h"
#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/placement.h"

namespace sysone {

struct JobRequest {
  const DecisionJobPlan& plan;
  bool full_head =
      false;  // read the whole vocabulary too: diagnostics, or a confidence that needs it
  uint64_t cache_salt_hash = 0;
  int32_t priority = 0;     // smaller first
  int64_t deadline_us = 0;  // MonotonicUs
  // Asked now and then while waiting; true gives the job up.
  std::function<bool()> client_gone;
};

struct QuestionResult {
  std::vector<float> label_logits;  // in label order
  std::optional<FullHead> full_head;
};

struct JobResult {
  std::vector<QuestionResult> questions;  // in plan order
  uint64_t cached_tokens = 0;
  int64_t queue_us = 0;  // published → first pass
  int64_t pass_us = 0;   // first pass → results
};

struct JobRefusal {
  Status status;
  int64_t retry_after_us = 0;  // of kUnavailable: when there may be room
};

// Any thread, several at once. The arena and the doorbell outlive it.
class EngineClient {
 public:
  EngineClient(Arena& arena, Doorbell& doorbell, const AdmissionLimits& limits)
      : arena_(arena), doorbell_(doorbell), limits_(limits) {}

  // Blocks until the job is answered, refused or past its deadline. kUnavailable: not accepted (queue full, no group, arena
  // full, deadline out of reach). kDeadlineExceeded, kCancelled: accepted, but the time ran out or the client left.
  std::variant<JobResult, JobRefusal> Run(const JobRequest& request);

 private:
  struct Placed;

  std::variant<SlotHandle, JobRefusal> Accept(const JobRequest& request, const JobDemand& demand);
  Status WriteJob(SlotHandle slot, const JobRequest& request, const struct JobShape& shape,
                  uint32_t* used_bytes);
  // Publishes the claimed slot to a group, waiting for one while there is none.
  Result<Placed> Place(SlotHandle slot, const JobRequest& request, const JobDemand& demand,
                       uint32_t used_bytes, GroupId excluded);
  Status AwaitEnd(SlotHandle slot, const JobRequest& request, SlotState* state);
  Status StillWanted(const JobRequest& request) const;
  Result<JobResult> ReadResult(SlotHandle slot, const JobRequest& request);

  Arena& arena_;
  Doorbell& doorbell_;
  const AdmissionLimits limits_;
  std::atomic<uint32_t> rotation_{0};
};

}  // namespace sysone
