// SPDX-License-Identifier: Apache-2.0
#include "worker/pass.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {
namespace {

// Until Finish numbers the states, a read's state is its batch row, or ~n for the n-th stored one.
int32_t Stored(size_t n) { return ~static_cast<int32_t>(n); }

}  // namespace

void Pass::Clear() {
  for (const int32_t kv_row : kv_rows_) computing_[static_cast<size_t>(kv_row)] = -1;
  for (auto* v :
       {&positions_, &kv_rows_, &read_rows_, &stored_blocks_, &read_states_, &label_states_})
    v->clear();
  tokens_.clear();
  label_ids_.clear();
  runs_.clear();
  spans_.clear();
  summarize_head_ = false;
}

void Pass::AddRun(std::span<const TokenId> tokens, int32_t first_position,
                  std::span<const int32_t> kv_rows, std::span<const KvSpan> path) {
  SYSONE_CHECK(tokens.size() == kv_rows.size(), "%zu rows for %zu tokens", kv_rows.size(),
               tokens.size());
  runs_.push_back({rows(), static_cast<int32_t>(tokens.size()), first_position,
                   static_cast<int32_t>(spans_.size()), static_cast<int32_t>(path.size())});
  spans_.insert(spans_.end(), path.begin(), path.end());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto kv_row = static_cast<size_t>(kv_rows[i]);
    if (computing_.size() <= kv_row) computing_.resize(kv_row + 1, -1);
    computing_[kv_row] = rows();
    kv_rows_.push_back(kv_rows[i]);
    positions_.push_back(first_position + static_cast<int32_t>(i));
    tokens_.push_back(tokens[i]);
  }
}

int32_t Pass::RowComputing(int32_t kv_row) const {
  const auto row = static_cast<size_t>(kv_row);
  return row < computing_.size() ? computing_[row] : -1;
}

void Pass::AddRead(int32_t row, const BranchTokens& branch, bool summarize_head) {
  read_rows_.push_back(row);
  AddLabels(row, branch, summarize_head);
}

void Pass::AddStoredRead(int32_t block, const BranchTokens& branch, bool summarize_head) {
  AddLabels(Stored(stored_blocks_.size()), branch, summarize_head);
  stored_blocks_.push_back(block);
}

void Pass::AddLabels(int32_t state, const BranchTokens& branch, bool summarize_head) {
  read_states_.push_back(state);
  label_ids_.insert(label_ids_.end(), branch.labels.begin(), branch.labels.end());
  label_states_.insert(label_states_.end(), branch.labels.size(), state);
  summarize_head_ |= summarize_head;
}

void Pass::Finish() {
  std::ranges::sort(read_rows_);
  read_rows_.erase(std::unique(read_rows_.begin(), read_rows_.end()), read_rows_.end());
  const auto computed = static_cast<int32_t>(read_rows_.size());
  for (auto* states : {&read_states_, &label_states_}) {
    for (int32_t& state : *states)
      state = state < 0 ? computed + ~state
                        : static_cast<int32_t>(std::ranges::lower_bound(read_rows_, state) -
                                               read_rows_.begin());
  }
}

void Pass::Build(std::span<const PassItem> items) {
  Clear();
  std::vector<int32_t> kv_rows;
  const auto add = [&](std::span<const TokenId> tokens, KvSpan before) {
    const KvSpan own{rows(), static_cast<int32_t>(tokens.size())};
    kv_rows.clear();
    for (int32_t i = 0; i < own.count; ++i) kv_rows.push_back(own.first_row + i);
    const KvSpan path[] = {before, own};
    AddRun(tokens, before.count, kv_rows,
           before.count > 0 ? std::span(path) : std::span(path).subspan(1));
    return own;
  };
  for (const PassItem& item : items) {
    const JobTokens& job = *item.job;
    const KvSpan prefix = job.prefix.empty() ? KvSpan{} : add(job.prefix, {});
    for (int32_t b = item.first_branch; b < item.first_branch + item.branch_count; ++b) {
      const BranchTokens& branch = job.branches[static_cast<size_t>(b)];
      SYSONE_CHECK(!branch.tokens.empty(), "a branch without tokens has no row to read");
      add(branch.tokens, prefix);
      AddRead(rows() - 1, branch, job.summarize_head);
    }
  }
  Finish();
}

}  // namespace sysone
