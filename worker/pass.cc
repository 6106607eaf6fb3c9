// SPDX-License-Identifier: Apache-2.0
#include "worker/pass.h"

#include "base/check.h"

namespace sysone {

void Pass::Build(std::span<const PassItem> items) {
  for (auto* v : {&positions_, &kv_rows_, &read_rows_, &label_reads_}) v->clear();
  tokens_.clear();
  label_ids_.clear();
  runs_.clear();
  spans_.clear();
  summarize_head_ = false;

  for (const PassItem& item : items) {
    const JobTokens& job = *item.job;
    const KvSpan prefix{rows(), static_cast<int32_t>(job.prefix.size())};
    if (prefix.count > 0) AddRun(job.prefix, 0, {});
    for (int32_t b = item.first_branch; b < item.first_branch + item.branch_count; ++b) {
      const BranchTokens& branch = job.branches[static_cast<size_t>(b)];
      SYSONE_CHECK(!branch.tokens.empty(), "a branch without tokens has no row to read");
      AddRun(branch.tokens, prefix.count, prefix);
      for (const TokenId label : branch.labels) {
        label_ids_.push_back(label);
        label_reads_.push_back(static_cast<int32_t>(read_rows_.size()));
      }
      read_rows_.push_back(rows() - 1);
    }
    summarize_head_ |= job.summarize_head;
  }
}

void Pass::AddRun(std::span<const TokenId> tokens, int32_t first_position, KvSpan prefix) {
  const int32_t first_row = rows();
  const int32_t count = static_cast<int32_t>(tokens.size());
  AttentionRun run{first_row, count, first_position, static_cast<int32_t>(spans_.size()), 1};
  if (prefix.count > 0) {
    spans_.push_back(prefix);
    ++run.span_count;
  }
  spans_.push_back({first_row, count});
  runs_.push_back(run);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  for (int32_t i = 0; i < count; ++i) {
    positions_.push_back(first_position + i);
    kv_rows_.push_back(first_row + i);
  }
}

int64_t PassRows(const PassItem& item) {
  int64_t rows = static_cast<int64_t>(item.job->prefix.size());
  for (int32_t b = item.first_branch; b < item.first_branch + item.branch_count; ++b)
    rows += static_cast<int64_t>(item.job->branches[static_cast<size_t>(b)].tokens.size());
  return rows;
}

}  // namespace sysone
