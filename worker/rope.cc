// SPDX-License-Identifier: Apache-2.0
#include "worker/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace sysone {
namespace {

double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double longest_kept = rope.original_max_positions / rope.high_freq_factor;
  const double shortest_scaled = rope.original_max_positions / rope.low_freq_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_scaled) return frequency / rope.factor;
  const double keep = (rope.original_max_positions / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - keep) * frequency / rope.factor + keep * frequency;
}

// The (fractional) pair whose wave turns `turns` times within the original length.
double YarnPairOfTurns(const RopeConfig& rope, int32_t head_dim, double turns) {
  return head_dim * std::log(rope.original_max_positions / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

double YarnFrequency(const RopeConfig& rope, int32_t head_dim, int32_t pair, double frequency) {
  const double low = std::max(std::floor(YarnPairOfTurns(rope, head_dim, rope.beta_fast)), 0.0);
  double high =
      std::min(std::ceil(YarnPairOfTurns(rope, head_dim, rope.beta_slow)), head_dim - 1.0);
  if (high == low) high += 0.001;  // the reference's guard against a ramp of no width
  const double scaled = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * scaled + frequency * (1 - scaled);
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& rope, int32_t head_dim) {
  const int32_t pairs = head_dim / 2;
  SYSONE_CHECK(rope.frequency_divisors.empty() ||
                   rope.frequency_divisors.size() == static_cast<size_t>(pairs),
               "rope_freqs has %zu values, a head has %d pairs", rope.frequency_divisors.size(),
               pairs);
  std::vector<float> frequencies(static_cast<size_t>(pairs));
  for (int32_t i = 0; i < pairs; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / head_dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = Llama3Frequency(rope, frequency);
        break;
      case RopeScaling::kYarn:
        frequency = YarnFrequency(rope, head_dim, i, frequency);
        break;
    }
    if (!rope.frequency_divisors.empty())
      frequency /= rope.frequency_divisors[static_cast<size_t>(i)];
    frequencies[static_cast<size_t>(i)] = static_cast<float>(frequency);
  }
  return frequencies;
}

float RopeAttentionFactor(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn) return 1;
  if (rope.attention_factor > 0) return static_cast<float>(rope.attention_factor);
  return rope.factor <= 1 ? 1 : static_cast<float>(0.1 * std::log(rope.factor) + 1);
}

RopeValues MakeRopeValues(const RopeConfig& rope, int32_t head_dim, int32_t positions) {
  const std::vector<float> frequencies = RopeFrequencies(rope, head_dim);
  const float attention_factor = RopeAttentionFactor(rope);
  RopeValues values;
  values.cos.reserve(static_cast<size_t>(positions) * frequencies.size());
  values.sin.reserve(values.cos.capacity());
  for (int32_t position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(position) * frequency;
      values.cos.push_back(attention_factor *
                           static_cast<float>(std::cos(static_cast<double>(angle))));
      values.sin.push_back(attention_factor *
                           static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
  return values;
}

}  // namespace sysone
