// SPDX-License-Identifier: Apache-2.0
#include "worker/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {
namespace {

int64_t LongestBranch(const JobTokens& job) {
  size_t longest = 0;
  for (const BranchTokens& branch : job.branches) longest = std::max(longest, branch.tokens.size());
  return static_cast<int64_t>(longest);
}

int32_t Size(std::span<const TokenId> tokens) { return static_cast<int32_t>(tokens.size()); }

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, KvCache& cache)
    : limits_(limits), cache_(cache) {
  SYSONE_CHECK(limits.max_rows > 0 && limits.shared_rows > 0 && limits.max_reads > 0,
               "a pass holds nothing");
}

// The worst case: the prefix ends in the middle of a block that another branch has filled.
int64_t Scheduler::BlocksNeeded(const JobTokens& job) const {
  return KvCache::BlocksFor(std::ssize(job.prefix)) + KvCache::BlocksFor(LongestBranch(job));
}

bool Scheduler::Fits(const JobTokens& job) const {
  return BlocksNeeded(job) <= cache_.block_count();
}

void Scheduler::Add(const QueuedJob& job) {
  SYSONE_CHECK(Fits(*job.tokens), "job %llu can never run",
               static_cast<unsigned long long>(job.id));
  const uint64_t number = arrivals_++;
  Waiting waiting;
  waiting.job = job;
  // Nothing is found again where nothing is to be kept, not even by a job that waits beside it.
  if (!cache_.keeps_unused()) waiting.job.salt = number;
  FindStored(waiting);
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t weighed = job.arrival_us + std::clamp(job.priority, -kMost, kMost) * kStepUs;
  waiting_.emplace(Order{weighed, number}, waiting);
}

void Scheduler::Remove(uint64_t id) {
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    if (at->second.job.id != id) continue;
    Erase(at);
    return;
  }
}

std::vector<uint64_t> Scheduler::ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [order, waiting] : waiting_) ids.push_back(waiting.job.id);
  return ids;
}

void Scheduler::Next(int64_t now_us, Pass& pass, ScheduledPass& out) {
  PassDone();
  pass.Clear();
  out.expired.clear();
  out.started.clear();
  out.reads.clear();
  out.finished.clear();
  Expire(now_us, out);
  const int64_t rows =
      waiting_.size() > 1 ? std::min(limits_.shared_rows, limits_.max_rows) : limits_.max_rows;
  Filling filling{pass, out, rows, limits_.max_reads};
  PlaceStored(filling);
  if (out.reads.empty()) Fill(filling);
  if (out.reads.empty() && pass.rows() == 0 && !waiting_.empty()) {  // every row is in use
    for (auto& [order, waiting] : waiting_) Stop(waiting);
    cache_.Clear();
    if (!alone_) alone_ = waiting_.begin()->first;
    Fill(filling);
    SYSONE_CHECK(pass.rows() > 0, "a job that fits into the empty cache did not");
  }
  pass.Finish();
}

void Scheduler::PassDone() {
  for (KvCursor& end : used_) cache_.Release(end);
  used_.clear();
}

void Scheduler::Expire(int64_t now_us, ScheduledPass& out) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.job.deadline_us > now_us) {
      ++at;
      continue;
    }
    out.expired.push_back(at->second.job.id);
    at = Erase(at);
  }
}

void Scheduler::PlaceStored(Filling& filling) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Waiting& waiting = at->second;
    if (waiting.stored && !waiting.started) FindStored(waiting);
    if (!waiting.stored || waiting.started ||
        std::ssize(waiting.job.tokens->branches) > filling.reads_left) {
      ++at;
      continue;
    }
    waiting.started = true;  // nothing to reserve: all its rows are there
    waiting.prefix = cache_.Begin(waiting.job.salt);
    at = Place(at, 0, filling);
  }
}

void Scheduler::Fill(Filling& filling) {
  if (alone_) {
    const auto at = waiting_.find(*alone_);
    if (Start(at->second)) Place(at, filling.rows_left, filling);
    return;
  }
  const int64_t half = waiting_.size() > 1 ? (filling.rows_left + 1) / 2 : filling.rows_left;
  FillInOrder(half, filling);
  if (filling.Empty()) return;
  for (auto at = waiting_.begin(); at != waiting_.end() && filling.HasRoom();) {
    Waiting& waiting = at->second;
    const bool ends =
        waiting.rest <= filling.rows_left &&
        std::ssize(waiting.job.tokens->branches) - waiting.next_branch <= filling.reads_left;
    at = ends && Start(waiting) ? Place(at, filling.rows_left, filling) : std::next(at);
  }
  FillInOrder(filling.rows_left, filling);
}

void Scheduler::FillInOrder(int64_t rows, Filling& filling) {
  bool may_start = true;  // one that finds no room to start keeps later ones from taking it
  for (auto at = waiting_.begin(); at != waiting_.end() && rows > 0 && filling.HasRoom();) {
    may_start = may_start && Start(at->second);
    if (!at->second.started) {
      ++at;
      continue;
    }
    const int64_t before = filling.rows_left;
    at = Place(at, rows, filling);
    rows -= before - filling.rows_left;
    if (filling.Empty()) return;  // the first one is stuck: nobody goes on without it
  }
}

Scheduler::Queue::iterator Scheduler::Place(Queue::iterator at, int64_t rows, Filling& filling) {
  Waiting& waiting = at->second;
  const JobTokens& job = *waiting.job.tokens;
  rows = std::min(rows, filling.rows_left);
  const int32_t rows_before = filling.pass.rows();
  const size_t reads_before = filling.out.reads.size();
  if (Extend(cache_.Begin(waiting.job.salt), waiting.prefix, job.prefix, 0, waiting.prefix_done,
             waiting.prefix_found, rows, filling)) {
    while (waiting.next_branch < std::ssize(job.branches) && PlaceBranch(waiting, rows, filling)) {
    }
  }
  if (!waiting.seen &&
      (filling.pass.rows() > rows_before || filling.out.reads.size() > reads_before)) {
    waiting.seen = true;
    filling.out.started.push_back(waiting.job.id);
  }
  if (waiting.next_branch == std::ssize(job.branches)) {
    filling.out.finished.push_back(waiting.job.id);
    used_.push_back(cache_.Fork(waiting.prefix));
    return Erase(at);
  }
  waiting.rest = std::ssize(job.prefix) - waiting.prefix_done - waiting.branch_done;
  for (auto b = static_cast<size_t>(waiting.next_branch); b < job.branches.size(); ++b)
    waiting.rest += std::ssize(job.branches[b].tokens);
  return std::next(at);
}

// Whether the branch is through.
bool Scheduler::PlaceBranch(Waiting& waiting, int64_t& rows, Filling& filling) {
  if (filling.reads_left == 0) return false;
  const JobTokens& job = *waiting.job.tokens;
  const BranchTokens& branch = job.branches[static_cast<size_t>(waiting.next_branch)];
  if (!waiting.branch_begun) {
    waiting.branch_begun = true;
    waiting.branch = cache_.Fork(waiting.prefix);
    waiting.branch_done = waiting.branch_found = 0;
  }
  if (!Extend(waiting.prefix, waiting.branch, branch.tokens, Size(job.prefix), waiting.branch_done,
              waiting.branch_found, rows, filling) ||
      !PlaceRead(waiting, rows, filling))
    return false;
  // The first branch pays for the prefix.
  const int32_t prefix_cached = waiting.next_branch == 0 ? waiting.prefix_found : Size(job.prefix);
  filling.out.reads.push_back(
      {waiting.job.id, waiting.next_branch, prefix_cached + waiting.branch_found, waiting.branch});
  --filling.reads_left;
  used_.push_back(waiting.branch);
  waiting.branch = {};
  waiting.branch_begun = false;
  waiting.branch_done = 0;
  ++waiting.next_branch;
  return true;
}

// The read behind the last token of a branch whose tokens all have their rows.
bool Scheduler::PlaceRead(Waiting& waiting, int64_t& rows, Filling& filling) {
  const JobTokens& job = *waiting.job.tokens;
  const BranchTokens& branch = job.branches[static_cast<size_t>(waiting.next_branch)];
  const int32_t last_row = cache_.LastRow(waiting.branch);
  int32_t row = filling.pass.RowComputing(last_row);
  if (row < 0) {
    if (const int32_t block = cache_.StateOf(waiting.branch); block >= 0) {
      filling.pass.AddStoredRead(block, branch, job.summarize_head);
      return true;
    }
    // Its rows are there, but nobody asked for its state so far: the last token once more, which
    // gives its row the same values.
    if (rows == 0) return false;
    --rows;
    --filling.rows_left;
    --waiting.branch_found;
    kv_rows_.assign(1, last_row);
    row = filling.pass.rows();
    AddRun(waiting.prefix, waiting.branch, branch.tokens.last(1),
           Size(job.prefix) + Size(branch.tokens) - 1, filling);
  }
  filling.pass.AddRead(row, branch, job.summarize_head);
  return true;
}

// Moves `at`, `done` tokens into `tokens`, on: over what is held, then over up to `rows` new rows.
// Whether it came to the end.
bool Scheduler::Extend(const KvCursor& prefix, KvCursor& at, std::span<const TokenId> tokens,
                       int32_t first_position, int32_t& done, int32_t& found, int64_t& rows,
                       Filling& filling) {
  const int32_t held = cache_.Advance(at, tokens.subspan(static_cast<size_t>(done)));
  done += held;
  found += held;
  const auto rest = tokens.subspan(static_cast<size_t>(done));
  const auto wanted = rest.first(static_cast<size_t>(std::min<int64_t>(rows, std::ssize(rest))));
  kv_rows_.clear();
  const int32_t added = cache_.Append(at, wanted, kv_rows_);
  if (added > 0)
    AddRun(prefix, at, wanted.first(static_cast<size_t>(added)), first_position + done, filling);
  done += added;
  rows -= added;
  filling.rows_left -= added;
  return done == Size(tokens);
}

// Tokens that end at `end` and whose rows are kv_rows_. The prefix's rows stay spans of their own:
// attention takes what several branches begin with for all of them at once.
void Scheduler::AddRun(const KvCursor& prefix, const KvCursor& end, std::span<const TokenId> tokens,
                       int32_t first_position, Filling& filling) {
  path_.clear();
  cache_.AppendPath(cache_.Begin(prefix.salt), prefix, path_);
  cache_.AppendPath(prefix, end, path_);
  filling.pass.AddRun(tokens, first_position, kv_rows_, path_);
}

bool Scheduler::Start(Waiting& waiting) {
  if (waiting.started) return true;
  const int64_t blocks = BlocksNeeded(*waiting.job.tokens);
  if (reserved_ > 0 && reserved_ + blocks > cache_.block_count()) return false;
  waiting.started = true;
  waiting.reserved = blocks;
  reserved_ += blocks;
  waiting.prefix = cache_.Begin(waiting.job.salt);
  return true;
}

// Gives back what the job holds; branches that were read stay read.
void Scheduler::Stop(Waiting& waiting) {
  if (!waiting.started) return;
  cache_.Release(waiting.prefix);
  cache_.Release(waiting.branch);
  waiting.prefix_done = waiting.prefix_found = waiting.branch_done = waiting.branch_found = 0;
  waiting.branch_begun = waiting.started = waiting.stored = false;
  reserved_ -= waiting.reserved;
  waiting.reserved = 0;
}

Scheduler::Queue::iterator Scheduler::Erase(Queue::iterator at) {
  Stop(at->second);
  if (alone_ == at->first) alone_.reset();
  return waiting_.erase(at);
}

void Scheduler::FindStored(Waiting& waiting) const {
  const JobTokens& job = *waiting.job.tokens;
  KvCursor prefix = cache_.Begin(waiting.job.salt);
  waiting.rest = std::ssize(job.prefix) - cache_.Walk(prefix, job.prefix);
  const bool prefix_held = waiting.rest == 0;
  waiting.stored = prefix_held;
  for (const BranchTokens& branch : job.branches) {
    KvCursor end = prefix;
    const int32_t held = prefix_held ? cache_.Walk(end, branch.tokens) : 0;
    waiting.rest += std::ssize(branch.tokens) - held;
    waiting.stored = waiting.stored && held == Size(branch.tokens) && cache_.StateOf(end) >= 0;
  }
}

}  // namespace sysone
