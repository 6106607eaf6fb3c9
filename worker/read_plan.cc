// SPDX-License-Identifier: Apache-2.0
#include "worker/read_plan.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {

void ReadPlan::Build(const PassPlan& pass, std::span<const int32_t> rows) {
  rows_ = rows;
  spans_ = pass.spans;
  positions_.clear();
  runs_.clear();
  for (const int32_t row : rows) {
    // The last run that begins at or before the row.
    const auto after = std::ranges::upper_bound(pass.runs, row, {}, &AttentionRun::first_row);
    SYSONE_CHECK(after != pass.runs.begin(), "no run holds row %d", row);
    AttentionRun run = *(after - 1);
    SYSONE_CHECK(row - run.first_row < run.rows, "no run holds row %d", row);
    run.first_position += row - run.first_row;
    run.first_row = static_cast<int32_t>(runs_.size());
    run.rows = 1;
    positions_.push_back(run.first_position);
    runs_.push_back(run);
  }
}

}  // namespace sysone
