// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/pass_results.h"

#include <algorithm>

namespace sysone {
namespace {

// States of 256 reads of a model with 8192 columns, and their labels, fit: when it moves, all recorded passes are forgotten.
constexpr int64_t kFirstFloats = (int64_t{2} << 20) + (int64_t{8} << 10);

}  // namespace

DevicePassResults::DevicePassResults(Stream& stream) : stream_(stream), host_(kFirstFloats) {}

void DevicePassResults::Put(const PassResults& results) {
  results_ = results;
  const int64_t floats = std::ssize(results.label_logits) + std::ssize(results.states);
  if (floats <= host_.count()) return;
  // A pass whose results nobody fetched may still write to the old memory.
  stream_.Wait();
  host_ = PinnedArray<float>(std::max(floats, 2 * host_.count()));
  ++generation_;
}

float* DevicePassResults::Find(std::span<const float> values) const {
  if (values.empty()) return nullptr;
  if (values.data() == results_.label_logits.data()) return host_.data();
  if (values.data() == results_.states.data()) return states();
  return nullptr;
}

void DevicePassResults::Fetch() {
  if (results_.label_logits.empty() && results_.states.empty()) return;
  stream_.Wait();
  std::copy_n(host_.data(), results_.label_logits.size(), results_.label_logits.data());
  std::copy_n(states(), results_.states.size(), results_.states.data());
}

}  // namespace sysone
