// Builds PassPlans for tests: runs after runs, each seeing some spans and its own rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/backend_variants.h"

namespace sysone {

struct AttentionBatch {
  std::vector<int32_t> positions, kv_rows;
  std::vector<AttentionRun> runs;
  std::vector<KvSpan> spans;
  int32_t next_store_row = 0;

  int32_t rows() const { return static_cast<int32_t>(positions.size()); }
  int32_t store_rows() const { return std::max(next_store_row, 1); }
  PassPlan Plan() const { return {positions, kv_rows, runs, spans}; }

  // Appends `count` rows after the positions that `before` holds; returns those spans and the new
  // rows'.
  std::vector<KvSpan> AddRun(std::vector<KvSpan> before, int32_t count) {
    int32_t first_position = 0;
    for (const KvSpan& span : before) first_position += span.count;
    before.push_back({next_store_row, count});
    runs.push_back({rows(), count, first_position, static_cast<int32_t>(spans.size()),
                    static_cast<int32_t>(before.size())});
    spans.insert(spans.end(), before.begin(), before.end());
    for (int32_t i = 0; i < count; ++i) {
      positions.push_back(first_position + i);
      kv_rows.push_back(next_store_row++);
    }
    return before;
  }

  // Moves every store row to a random place, and cuts spans where rows are no longer neighbours
  // (empty ones stay in between).
  void Scatter(uint32_t seed) {
    std::vector<int32_t> place(static_cast<size_t>(next_store_row));
    std::iota(place.begin(), place.end(), 0);
    std::shuffle(place.begin(), place.end(), std::mt19937(seed));
    for (int32_t& row : kv_rows) row = place[static_cast<size_t>(row)];
    std::vector<KvSpan> all;
    for (AttentionRun& run : runs) {
      const auto first = static_cast<int32_t>(all.size());
      for (int32_t s = run.first_span; s < run.first_span + run.span_count; ++s) {
        const KvSpan& span = spans[static_cast<size_t>(s)];
        for (int32_t i = 0; i < span.count; ++i)
          all.push_back({place[static_cast<size_t>(span.first_row + i)], 1});
        all.push_back({0, 0});
      }
      run.first_span = first;
      run.span_count = static_cast<int32_t>(all.size()) - first;
    }
    spans = std::move(all);
  }
};

inline std::vector<float> Attend(Backend& backend, const AttentionShape& shape,
                                 const AttentionBatch& batch, const std::vector<float>& qkv,
                                 KvStore& store) {
  auto out = backend.NewOperand(batch.rows(), shape.q_cols());
  const auto tensor = MakeTensor(backend, qkv, shape.qkv_cols());
  backend.StoreKv(*tensor, shape, batch.Plan(), store);
  backend.Attend(*tensor, shape, batch.Plan(), store, *out);
  return Read(backend, *out, batch.rows(), shape.q_cols());
}

}  // namespace sysone
