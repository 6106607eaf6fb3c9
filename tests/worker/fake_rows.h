// Stands for the key-value stores and a model in tests of what is scheduled: every row remembers the
// prompt that it was computed for, and a read gives the prompt that it really saw.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "worker/kv_cache.h"
#include "worker/pass.h"
#include "worker/scheduler.h"

namespace sysone {

class FakeRows {
 public:
  using Prompt = std::vector<TokenId>;

  // Computes a pass; the prompt seen by each of its reads, in their order.
  std::vector<Prompt> Run(const Pass& pass, const ScheduledPass& scheduled, KvCache& cache) {
    const PassPlan plan = pass.plan();
    // As in a layer, all rows are stored before any is looked at.
    for (size_t r = 0; r < plan.positions.size(); ++r) token_[plan.kv_rows[r]] = pass.tokens()[r];
    std::vector<Prompt> seen_by_row(plan.positions.size());
    for (const AttentionRun& run : plan.runs) {
      std::vector<int32_t> rows;
      for (int32_t s = run.first_span; s < run.first_span + run.span_count; ++s)
        for (int32_t i = 0; i < plan.spans[static_cast<size_t>(s)].count; ++i)
          rows.push_back(plan.spans[static_cast<size_t>(s)].first_row + i);
      EXPECT_EQ(std::ssize(rows), run.first_position + run.rows);
      Prompt prompt;
      for (size_t p = 0; p < rows.size(); ++p) {
        prompt.push_back(token_.at(rows[p]));
        const int32_t in_run = static_cast<int32_t>(p) - run.first_position;
        if (in_run < 0) continue;
        const auto r = static_cast<size_t>(run.first_row + in_run);
        EXPECT_EQ(plan.positions[r], static_cast<int32_t>(p));
        EXPECT_EQ(plan.kv_rows[r], rows[p]) << "a run's own rows are the last of its path";
        seen_by_row[r] = prompt;
      }
    }
    for (size_t r = 0; r < seen_by_row.size(); ++r) {
      EXPECT_EQ(seen_by_row[r].empty(), false) << "no run holds row " << r;
      computed_for_[plan.kv_rows[r]] = seen_by_row[r];
    }
    // Whoever looks at a row wants it computed behind exactly the tokens that he sees before it.
    for (const AttentionRun& run : plan.runs) {
      const Prompt& prompt = seen_by_row[static_cast<size_t>(run.first_row + run.rows - 1)];
      size_t p = 0;
      for (int32_t s = run.first_span; s < run.first_span + run.span_count; ++s) {
        const KvSpan& span = plan.spans[static_cast<size_t>(s)];
        for (int32_t i = 0; i < span.count; ++i, ++p) {
          const Prompt& held = computed_for_.at(span.first_row + i);
          EXPECT_TRUE(held.size() == p + 1 && std::equal(held.begin(), held.end(), prompt.begin()));
        }
      }
    }
    std::vector<Prompt> states;
    for (const int32_t row : pass.read_rows())
      states.push_back(seen_by_row[static_cast<size_t>(row)]);
    for (const int32_t block : pass.stored_blocks()) states.push_back(kept_.at(block));
    std::vector<Prompt> reads;
    for (size_t i = 0; i < scheduled.reads.size(); ++i) {
      const auto state = static_cast<size_t>(pass.read_states()[i]);
      reads.push_back(states[state]);
      if (state >= pass.read_rows().size()) continue;
      kept_[scheduled.reads[i].end.block] = states[state];
      cache.SetState(scheduled.reads[i].end);
    }
    return reads;
  }

 private:
  std::map<int32_t, TokenId> token_;
  std::map<int32_t, Prompt> computed_for_;
  std::map<int32_t, Prompt> kept_;  // by block
};

}  // namespace sysone
