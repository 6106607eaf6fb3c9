// SPDX-License-Identifier: Apache-2.0
#include "worker/padded_batch.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {
namespace {

// `values`, or a copy of them in `grown` with `fill` behind.
template <class T>
std::span<const T> Grow(std::span<const T> values, int32_t count, T fill, std::vector<T>& grown) {
  const auto size = static_cast<size_t>(count);
  SYSONE_CHECK(size >= values.size(), "%zu values for a pass of %zu", values.size(), size);
  if (size == values.size()) return values;
  grown.assign(values.begin(), values.end());
  grown.resize(size, fill);
  return grown;
}

}  // namespace

PassInputs PaddedBatch::Pad(const PassInputs& inputs, int32_t rows, int32_t reads, int32_t labels) {
  PassInputs padded = inputs;
  padded.tokens = Grow(inputs.tokens, rows, kNoToken, tokens_);
  padded.plan.positions = Grow(inputs.plan.positions, rows, 0, positions_);
  padded.plan.kv_rows = Grow(inputs.plan.kv_rows, rows, kNoKvRow, kv_rows_);
  padded.read_rows = Grow(inputs.read_rows, reads, 0, read_rows_);
  padded.read_plan.positions = Grow(inputs.read_plan.positions, reads, 0, read_positions_);
  padded.label_reads = Grow(inputs.label_reads, labels, 0, label_reads_);
  padded.label_ids = Grow(inputs.label_ids, labels, kNoToken, label_ids_);
  return padded;
}

PassResults PaddedBatch::Room(const PassResults& results, size_t labels, size_t state_floats) {
  label_logits_.resize(labels);
  states_.resize(state_floats);
  PassResults room = results;
  if (results.label_logits.size() != labels) room.label_logits = label_logits_;
  if (results.states.size() != state_floats) room.states = states_;
  return room;
}

void PaddedBatch::Return(const PassResults& room, const PassResults& results) const {
  const auto copy = [](std::span<const float> from, std::span<float> to) {
    if (from.data() != to.data()) std::copy_n(from.begin(), to.size(), to.begin());
  };
  copy(room.label_logits, results.label_logits);
  copy(room.states, results.states);
}

}  // namespace sysone
