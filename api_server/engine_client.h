// Puts jobs into the arena and brings their results back: admission, placement on the least-loaded group, and a new placement
// when the group dies meanwhile. A job's bytes are written once, into the slot that the worker reads. No thread waits for a
// job: the HTTP server's loop looks at what ended (LoopSource), woken by the worker's notice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "api_server/loop_source.h"
#include "api_server/scoring.h"
#include "api_server/strategy.h"
#include "base/status.h"
#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/placement.h"
#include "shm_arena/wake_socket.h"

namespace sysone {

struct JobRequest {
  const DecisionJobPlan& plan;  // read by Start alone
  bool full_head =
      false;  // read the whole vocabulary too: diagnostics, or a confidence that needs it
  uint64_t cache_salt_hash = 0;
  int32_t priority = 0;     // smaller first
  int64_t deadline_us = 0;  // MonotonicUs
  // Asked now and then while the job waits; true gives it up.
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

// The arena, the doorbell and the socket (this process's) outlive it.
class EngineClient : public LoopSource {
 public:
  // kUnavailable: not accepted (queue full, no group, arena full, deadline out of reach). kDeadlineExceeded, kCancelled:
  // accepted, but the time ran out or the client left.
  using Outcome = std::variant<JobResult, JobRefusal>;
  using Done = std::function<void(Outcome)>;

  // `prefix_caching`: groups keep what they computed, so a job goes where its beginning is.
  EngineClient(Arena& arena, Doorbell& doorbell, WakeSocket& socket, const AdmissionLimits& limits,
               bool prefix_caching);
  ~EngineClient() override;

  // Calls `done` exactly once: before it returns when the job is not accepted, else from Poll. Any thread; one that is not
  // Poll's has the loop wake up afterwards, so that the job's deadline is seen.
  void Start(const JobRequest& request, Done done);

  size_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

  int wake_fd() const override { return socket_.fd(); }
  void Quieten() override { socket_.Drain(); }
  int64_t Poll() override;
  bool FallAsleep() override { return notices_.FallAsleepOnSocket(me_); }
  void WakeUp() override { notices_.WakeUp(me_); }

 private:
  struct Job;
  struct Ended;

  JobMarks MarksOf(const JobRequest& request) const;
  // Asks the prefix board what each group of `board` holds.
  void FindHeld(const BoardSnapshot& board, const JobMarks& marks, JobDemand& demand) const;
  std::variant<SlotHandle, JobRefusal> Accept(const JobRequest& request, const JobMarks& marks,
                                              JobDemand demand, size_t bytes);
  Status WriteJob(SlotHandle slot, const JobRequest& request, const struct JobShape& shape,
                  uint32_t* used_bytes);
  // With mutex_ held:
  bool Place(Job& job);
  std::optional<Outcome> Look(Job& job);
  std::optional<Outcome> StillWanted(const Job& job) const;
  void LookAt(uint32_t slot, bool sweep, std::vector<Ended>& ended);

  Result<JobResult> ReadResult(const Job& job);

  Arena& arena_;
  Doorbell& doorbell_;
  WakeSocket& socket_;
  const AdmissionLimits limits_;
  const bool prefix_caching_;
  NoticeBoard notices_;
  const NoticeReceiver me_;
  std::atomic<uint32_t> rotation_{0};
  std::atomic<size_t> in_flight_{0};

  std::mutex mutex_;
  std::vector<std::unique_ptr<Job>> jobs_;  // by slot; a slot holds one job
  size_t unplaced_ = 0;                     // of them, waiting for a group
  int64_t next_sweep_us_ = 0;
  std::vector<uint32_t> noticed_;  // Poll's
};

}  // namespace sysone
