// Which waiting jobs go into the next pass. Pure: no clock, no arena, no backend; time is an
// argument.
//
// Jobs go in order of (priority, arrival), smaller first. A job enters with as many of its branches
// as fit and keeps its place with the rest; the first job that does not fit at all ends the pass,
// so no stream of small jobs can overtake a large one for ever.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "worker/pass.h"

namespace sysone {

struct SchedulerLimits {
  int64_t max_rows = 0;   // tokens a pass
  int32_t max_reads = 0;  // branches a pass
};

struct QueuedJob {
  uint64_t id = 0;                    // the caller's, unique among waiting jobs
  const JobTokens* tokens = nullptr;  // outlives the job's stay
  int64_t priority = 0;               // smaller first
  int64_t deadline_us = 0;            // on the clock of Next's now_us
};

struct ScheduledSlice {
  uint64_t id = 0;
  PassItem item;
  bool last = false;  // no branches of the job remain after this pass
};

struct ScheduledPass {
  std::vector<uint64_t>
      expired;  // their deadline passed before a pass was spent on them; no longer waiting
  std::vector<ScheduledSlice> slices;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerLimits limits) : limits_(limits) {}

  // Whether every branch of `job` fits into a pass of its own; one that does not must never be
  // added.
  bool Fits(const JobTokens& job) const;
  void Add(const QueuedJob& job);
  void Remove(uint64_t id);  // cancelled; no effect when unknown
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  std::vector<uint64_t> ids() const;  // of all waiting jobs, in order

  // The next pass; jobs whose last branch is in it no longer wait.
  ScheduledPass Next(int64_t now_us);

 private:
  using Order = std::tuple<int64_t, uint64_t>;  // priority, arrival
  struct Waiting {
    QueuedJob job;
    int32_t next_branch = 0;
  };

  const SchedulerLimits limits_;
  uint64_t arrivals_ = 0;
  std::map<Order, Waiting> waiting_;
};

}  // namespace sysone
