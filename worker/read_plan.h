// The rows of a pass whose result is read. After the keys and values of the last layer are stored nobody looks at the others
// again, so that layer's attention, output projection and feed-forward part run over a batch of these rows alone: a plan like
// that of the pass, in which every row is a run of its own. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sysone {

// Reused from pass to pass; its vectors keep their memory.
class ReadPlan {
 public:
  // `rows` are rows of `pass`, in any order. Both must outlive the use of plan() and rows().
  void Build(const PassPlan& pass, std::span<const int32_t> rows);

  // Row i is rows()[i] of the pass and sees what that row sees.
  PassPlan plan() const { return {positions_, {}, runs_, spans_}; }
  std::span<const int32_t> rows() const { return rows_; }

 private:
  std::span<const int32_t> rows_;
  std::vector<int32_t> positions_;
  std::vector<AttentionRun> runs_;
  std::span<const KvSpan> spans_;  // of the pass
};

}  // namespace sysone
