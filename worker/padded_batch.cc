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

PassInputs PaddedBatch::Pad(const PassInputs& inputs, int32_t rows, int32_t reads) {
  PassInputs padded = inputs;
  padded.tokens = Grow(inputs.tokens, rows, kNoToken, tokens_);
  padded.plan.positions = Grow(inputs.plan.positions, rows, 0, positions_);
  padded.plan.kv_rows = Grow(inputs.plan.kv_rows, rows, kNoKvRow, kv_rows_);
  padded.read_rows = Grow(inputs.read_rows, reads, 0, read_rows_);
  padded.read_plan.positions = Grow(inputs.read_plan.positions, reads, 0, read_positions_);
  return padded;
}

}  // namespace sysone
