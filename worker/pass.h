// One pass put together from jobs: which rows it has, what each may see, and what is read. Pure, no
// backend.
//
// A job is a shared prefix and one branch a question. In the pass the prefix stands once; each
// branch continues it and sees the prefix and itself only:
//
//   rows   | prefix of job A | branch A0 | branch A1 | prefix of job B | branch B0 | …
//   sees     itself            prefix+A0   prefix+A1   itself            prefix+B0
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sysone {

// A question's branch: its tokens after the shared prefix, and the labels whose logits are wanted
// at its last token.
struct BranchTokens {
  std::span<const TokenId> tokens;  // at least one
  std::span<const TokenId> labels;  // at least one
};

struct JobTokens {
  std::span<const TokenId> prefix;  // may be empty
  std::vector<BranchTokens> branches;
  bool summarize_head = false;  // diagnostics were asked for
};

// Some of a job's branches, put into one pass. A job too large for one pass is spread over several
// by its branches.
struct PassItem {
  const JobTokens* job = nullptr;
  int32_t first_branch = 0;
  int32_t branch_count = 0;
};

// Reused from pass to pass; its vectors keep their memory.
class Pass {
 public:
  void Build(std::span<const PassItem> items);

  PassPlan plan() const { return {positions_, kv_rows_, runs_, spans_}; }
  int32_t rows() const { return static_cast<int32_t>(tokens_.size()); }
  std::span<const TokenId> tokens() const { return tokens_; }
  // One read a branch, in the order of items and branches: the row of its last token.
  std::span<const int32_t> read_rows() const { return read_rows_; }
  // All labels of all reads, and for each the index of its read.
  std::span<const TokenId> label_ids() const { return label_ids_; }
  std::span<const int32_t> label_reads() const { return label_reads_; }
  bool summarize_head() const { return summarize_head_; }

 private:
  void AddRun(std::span<const TokenId> tokens, int32_t first_position, KvSpan prefix);

  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, kv_rows_, read_rows_, label_reads_;
  std::vector<TokenId> label_ids_;
  std::vector<AttentionRun> runs_;
  std::vector<KvSpan> spans_;
  bool summarize_head_ = false;
};

// Rows that `item` takes.
int64_t PassRows(const PassItem& item);

}  // namespace sysone
