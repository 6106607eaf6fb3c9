// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/pass_inputs.h"

#include <algorithm>

namespace sysone {
namespace {

// Inputs of a pass of 8192 rows fit, so that the block seldom moves.
constexpr int64_t kBlockBytes = int64_t{4} << 20;
// The least room for runs and spans. Most passes are one request, with a few runs of a few spans.
constexpr int32_t kFewRuns = 16, kFewSpans = 64;

// The next of few · 4^n.
int32_t RoomFor(int32_t count, int32_t few) {
  int32_t room = few;
  while (room < count) room *= 4;
  return room;
}

bool SamePlan(const PassPlan& a, const PassPlan& b) {
  return a.positions.data() == b.positions.data() && a.positions.size() == b.positions.size() &&
         a.runs.data() == b.runs.data() && a.runs.size() == b.runs.size() &&
         a.spans.data() == b.spans.data();
}

}  // namespace

DevicePassInputs::DevicePassInputs(Stream& stream) : block_(stream, kBlockBytes) {}

void DevicePassInputs::Put(const PassInputs& inputs) {
  const auto rows = static_cast<int32_t>(inputs.tokens.size());
  const auto reads = static_cast<int32_t>(inputs.read_rows.size());
  const AttentionLimits needed = LimitsOf(inputs.plan), of_reads = LimitsOf(inputs.read_plan);
  size_ = {rows,
           reads,
           std::min(RoomFor(needed.runs, kFewRuns), rows),
           RoomFor(std::max(needed.spans, of_reads.spans), kFewSpans),
           needed.chunks || of_reads.chunks,
           static_cast<int32_t>(inputs.label_ids.size()),
           0};
  block_.Begin();
  block_.Add(inputs.tokens);
  block_.Add(inputs.plan.positions);
  block_.Add(inputs.plan.kv_rows);
  block_.Add(inputs.read_rows);
  block_.Add(inputs.read_plan.positions);
  block_.Add(inputs.label_reads);
  block_.Add(inputs.label_ids);
  all_ = PutPlan(inputs.plan, {rows, size_.runs, size_.spans, size_.chunks});
  reads_ = PutPlan(inputs.read_plan, {reads, reads, size_.spans, size_.chunks});
}

DevicePassInputs::Planned DevicePassInputs::PutPlan(const PassPlan& plan,
                                                    const AttentionLimits& limits) {
  const auto words = static_cast<size_t>(AttentionLayout(limits).words);
  const size_t offset = block_.Reserve(words * sizeof(int32_t));
  tables_.Write(plan, limits, {reinterpret_cast<int32_t*>(block_.Host(offset)), words});
  return {plan, limits, offset};
}

DevicePassInputs::Table DevicePassInputs::FindTable(const PassPlan& plan) const {
  for (const Planned* planned : {&all_, &reads_})
    if (SamePlan(plan, planned->plan))
      return {reinterpret_cast<const int32_t*>(block_.Device(planned->offset)), planned->limits};
  return {};
}

}  // namespace sysone
