// What the next pass computes. Pure: no clock, no arena, no backend; time is an argument, and the
// key-value rows are numbers (KvCache).
//
// Order. Jobs go by arrival, a step of priority counting as kStepUs of waiting: a job of worse
// priority is overtaken by what arrives within that time, and by nothing that comes later.
//
// Passes are small while several jobs are there (shared_rows), because a row takes the same time in
// any pass that is not tiny, and who arrives during a pass waits for its end. A prompt that is
// longer goes in pieces:
//   1. Half of the pass is filled in order. So nobody waits for more than twice the work before
//      him, however many others come.
//   2. Jobs that end within this pass follow, in order. So a short job waits behind those before
//      it, and never for the end of a long prompt.
//   3. What is left goes to any job, in order.
//
// Memory. A job starts when its longest prompt fits beside what the started ones may still need.
// Should the rows run out all the same (paths that share tokens may lie in more blocks than
// expected), all started jobs begin again, the first one alone: it always fits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "worker/kv_cache.h"
#include "worker/pass.h"

namespace sysone {

struct SchedulerLimits {
  int64_t max_rows = 0;     // tokens a pass, when one job is there
  int64_t shared_rows = 0;  // the same when several are; at most max_rows
  int32_t max_reads = 0;    // branches a pass
};

struct QueuedJob {
  uint64_t id = 0;                    // the caller's, unique among waiting jobs
  const JobTokens* tokens = nullptr;  // outlives the job's stay
  uint64_t salt = 0;                  // jobs of different salts share no rows
  int64_t priority = 0;               // smaller first
  int64_t arrival_us = 0;             // on the clock of Next's now_us, like the deadline
  int64_t deadline_us = 0;
};

struct ScheduledRead {
  uint64_t id = 0;
  int32_t branch = 0;
  int32_t cached_tokens = 0;  // of the branch's prompt, not computed for it
  KvCursor end;               // the prompt's last token; valid until PassDone
};

// Beside the Pass itself. Reused from pass to pass.
struct ScheduledPass {
  std::vector<uint64_t> expired;     // their deadline has passed; no longer waiting
  std::vector<uint64_t> started;     // in a pass for the first time
  std::vector<ScheduledRead> reads;  // those of the Pass, in its order
  std::vector<uint64_t> finished;    // their last branch is among `reads`; no longer waiting
};

class Scheduler {
 public:
  // What a step of priority weighs.
  static constexpr int64_t kStepUs = 1'000'000;

  Scheduler(const SchedulerLimits& limits, KvCache& cache);

  // Whether every prompt of `job` fits into the cache by itself; one that does not must never be
  // added.
  bool Fits(const JobTokens& job) const;
  void Add(const QueuedJob& job);
  void Remove(uint64_t id);  // cancelled; no effect when unknown
  bool empty() const { return waiting_.empty(); }
  size_t size() const { return waiting_.size(); }
  std::vector<uint64_t> ids() const;  // of all waiting jobs, in order

  // Fills `pass` and `out`. Jobs that are stored as a whole come first, in a pass without rows.
  // Nothing in `pass` means that nobody waits.
  void Next(int64_t now_us, Pass& pass, ScheduledPass& out);
  // The pass was computed: what only it needed may be forgotten.
  void PassDone();

 private:
  using Order = std::pair<int64_t, uint64_t>;  // weighed arrival, number
  struct Waiting {
    QueuedJob job;
    // Rows that it still takes: until it starts, what the cache did not hold on arrival; then all
    // that it has not come to yet.
    int64_t rest = 0;
    bool stored = false;   // on arrival all of it was there, final states too
    bool started = false;  // it has `reserved` blocks, and its cursors count
    bool seen = false;     // was in ScheduledPass::started
    int64_t reserved = 0;
    KvCursor prefix, branch;  // how far it has come
    int32_t prefix_done = 0;  // tokens
    int32_t branch_done = 0;
    int32_t prefix_found = 0;  // of these tokens, not computed for this job
    int32_t branch_found = 0;
    int32_t next_branch = 0;
    bool branch_begun = false;
  };
  using Queue = std::map<Order, Waiting>;
  // The pass in work, and what is left of its limits.
  struct Filling {
    Pass& pass;
    ScheduledPass& out;
    int64_t rows_left;
    int32_t reads_left;
    bool HasRoom() const { return rows_left > 0 && reads_left > 0; }
    bool Empty() const { return pass.rows() == 0 && out.reads.empty(); }
  };

  void Expire(int64_t now_us, ScheduledPass& out);
  void PlaceStored(Filling& filling);
  void Fill(Filling& filling);
  void FillInOrder(int64_t rows, Filling& filling);
  // Puts what it can of a started job into the pass, up to `rows`; the job after it in order.
  Queue::iterator Place(Queue::iterator at, int64_t rows, Filling& filling);
  bool PlaceBranch(Waiting& waiting, int64_t& rows, Filling& filling);
  bool PlaceRead(Waiting& waiting, int64_t& rows, Filling& filling);
  bool Extend(const KvCursor& prefix, KvCursor& at, std::span<const TokenId> tokens,
              int32_t first_position, int32_t& done, int32_t& found, int64_t& rows,
              Filling& filling);
  void AddRun(const KvCursor& prefix, const KvCursor& end, std::span<const TokenId> tokens,
              int32_t first_position, Filling& filling);
  bool Start(Waiting& waiting);
  void Stop(Waiting& waiting);
  Queue::iterator Erase(Queue::iterator at);
  int64_t BlocksNeeded(const JobTokens& job) const;
  void FindStored(Waiting& waiting) const;

  const SchedulerLimits limits_;
  KvCache& cache_;
  uint64_t arrivals_ = 0;
  Queue waiting_;
  int64_t reserved_ = 0;          // blocks, of all started jobs
  std::optional<Order> alone_;    // this job runs alone until it ends
  std::vector<KvCursor> used_;    // held until PassDone
  std::vector<int32_t> kv_rows_;  // of the run in work
  std::vector<KvSpan> path_;
};

}  // namespace sysone
