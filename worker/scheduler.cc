// SPDX-License-Identifier: Apache-2.0
#include "worker/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {

bool Scheduler::Fits(const JobTokens& job) const {
  if (limits_.max_reads < 1) return false;
  return std::all_of(job.branches.begin(), job.branches.end(), [&](const BranchTokens& branch) {
    return static_cast<int64_t>(job.prefix.size() + branch.tokens.size()) <= limits_.max_rows;
  });
}

void Scheduler::Add(const QueuedJob& job) {
  SYSONE_CHECK(Fits(*job.tokens), "job %llu can never run",
               static_cast<unsigned long long>(job.id));
  waiting_.emplace(Order{job.priority, arrivals_++}, Waiting{job, 0});
}

void Scheduler::Remove(uint64_t id) {
  std::erase_if(waiting_, [id](const auto& entry) { return entry.second.job.id == id; });
}

std::vector<uint64_t> Scheduler::ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [order, waiting] : waiting_) ids.push_back(waiting.job.id);
  return ids;
}

ScheduledPass Scheduler::Next(int64_t now_us) {
  ScheduledPass pass;
  int64_t rows_left = limits_.max_rows;
  int32_t reads_left = limits_.max_reads;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Waiting& waiting = at->second;
    if (waiting.job.deadline_us <= now_us) {
      pass.expired.push_back(waiting.job.id);
      at = waiting_.erase(at);
      continue;
    }
    const JobTokens& job = *waiting.job.tokens;
    PassItem item{&job, waiting.next_branch, 0};
    int64_t rows = static_cast<int64_t>(job.prefix.size());
    for (size_t b = static_cast<size_t>(waiting.next_branch);
         b < job.branches.size() && item.branch_count < reads_left; ++b) {
      const int64_t branch_rows = static_cast<int64_t>(job.branches[b].tokens.size());
      if (rows + branch_rows > rows_left) break;
      rows += branch_rows;
      ++item.branch_count;
    }
    if (item.branch_count == 0) break;
    rows_left -= rows;
    reads_left -= item.branch_count;
    waiting.next_branch += item.branch_count;
    const bool last = waiting.next_branch == static_cast<int32_t>(job.branches.size());
    pass.slices.push_back({waiting.job.id, item, last});
    if (!last) break;
    at = waiting_.erase(at);
  }
  return pass;
}

}  // namespace sysone
