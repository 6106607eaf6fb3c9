// One pass over the model put together: which rows it computes, where each row's key and value go,
// what each row sees, and what is read. Pure, no backend.
//
//   rows   | run: tokens 0 … 255 of A | run: the rest of B | run: branch 0 of C | branch 1 of C | …
//   sees     itself                     B's rows of before   C's prefix           C's prefix
//                                       and itself           and itself           and itself
//
// A read wants the logits of some labels at the hidden state behind a prompt's last token. The state
// is that of a row of this pass, or one that was stored when the same prompt was computed before.
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
  std::span<const TokenId> labels;
};

// A job: a shared prefix and one branch a question.
struct JobTokens {
  std::span<const TokenId> prefix;  // may be empty
  std::vector<BranchTokens> branches;
  bool summarize_head = false;  // diagnostics were asked for
};

// Some of a job's branches.
struct PassItem {
  const JobTokens* job = nullptr;
  int32_t first_branch = 0;
  int32_t branch_count = 0;
};

// What the layers compute: views of a Pass, or of a message that tells of one.
struct BatchRows {
  std::span<const TokenId> tokens;  // [rows]
  PassPlan plan;
  // Rows whose final hidden states are wanted, ascending, each once.
  std::span<const int32_t> read_rows;
};

// What is read at hidden states, likewise.
struct BatchReads {
  int32_t states = 0;
  // All labels of all reads, and for each the state it is read at.
  std::span<const TokenId> label_ids;
  std::span<const int32_t> label_states;
  bool summarize_head = false;  // one HeadSummary a state is wanted, too
};

// Reused from pass to pass; its vectors keep their memory.
class Pass {
 public:
  // ---- Putting it together: Clear, then runs and reads in any order, then Finish. ----
  void Clear();
  // Tokens of one sequence from position `first_position` on, one of `kv_rows` for each. `path`:
  // the sequence's rows from position 0 to the last of these, in order. Rows that another run of
  // this pass computes are fine: all keys and values of a layer are stored before any is looked at.
  void AddRun(std::span<const TokenId> tokens, int32_t first_position,
              std::span<const int32_t> kv_rows, std::span<const KvSpan> path);
  // The batch row that computes this row of the stores in this pass, or -1.
  int32_t RowComputing(int32_t kv_row) const;
  void AddRead(int32_t row, const BranchTokens& branch, bool summarize_head);
  // `block`: where the caller keeps the state (KvCache::StateOf).
  void AddStoredRead(int32_t block, const BranchTokens& branch, bool summarize_head);
  void Finish();

  // All of it for a pass of whole jobs that share nothing and find nothing: each prefix stands
  // once, the branches behind it. For warming up, tests and benches.
  void Build(std::span<const PassItem> items);

  // ---- What the layers need. ----
  BatchRows batch_rows() const { return {tokens_, plan(), read_rows_}; }
  PassPlan plan() const { return {positions_, kv_rows_, runs_, spans_}; }
  int32_t rows() const { return static_cast<int32_t>(tokens_.size()); }
  std::span<const TokenId> tokens() const { return tokens_; }
  // Rows whose final hidden states are wanted, ascending, each once.
  std::span<const int32_t> read_rows() const { return read_rows_; }

  // ---- What the read-out needs. States are numbered: read_rows() first, stored ones next. ----
  BatchReads batch_reads() const { return {states(), label_ids_, label_states_, summarize_head_}; }
  int32_t states() const { return static_cast<int32_t>(read_rows_.size() + stored_blocks_.size()); }
  std::span<const int32_t> stored_blocks() const { return stored_blocks_; }
  // The state of each read, in the order of adding.
  std::span<const int32_t> read_states() const { return read_states_; }
  // All labels of all reads, and for each the state it is read at.
  std::span<const TokenId> label_ids() const { return label_ids_; }
  std::span<const int32_t> label_states() const { return label_states_; }
  bool summarize_head() const { return summarize_head_; }

 private:
  void AddLabels(int32_t state, const BranchTokens& branch, bool summarize_head);

  std::vector<TokenId> tokens_, label_ids_;
  std::vector<int32_t> positions_, kv_rows_, read_rows_, stored_blocks_, read_states_,
      label_states_;
  std::vector<AttentionRun> runs_;
  std::vector<KvSpan> spans_;
  std::vector<int32_t> computing_;  // by row of the stores: batch row, or -1; as long as needed
  bool summarize_head_ = false;
};

}  // namespace sysone
