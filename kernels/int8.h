// The numbers behind --dtype int8, shared by the backends.
//
//   weights      w ≈ q · scale, |q| ≤ 127, one scale for kInt8Group neighbours of an output column
//   activations  x ≈ q · step, |q| ≤ 32767, one step a row
//   product      Σ q q as an exact int32 for each group, times its scale, summed over the groups in
//                their order, times step
//
// One scale for a whole column changes 9 of 375 clear decisions of SmolLM2-135M, one for a group 1 of
// 186 (tests/system/int8_quality.cc).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sysone {

inline constexpr int64_t kInt8Group = 128;
inline constexpr int32_t kWeightLevels = 127;
inline constexpr int32_t kActivationLevels = 32767;
static_assert(kInt8Group * kWeightLevels * kActivationLevels <=
              std::numeric_limits<int32_t>::max());

// Fills out[n] and returns the scale. A group that has a value which is no number gets the scale
// NaN, so that its column's results are none either.
inline float QuantiseGroup(const float* w, int64_t n, int8_t* out) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(w[i]));
    finite &= std::isfinite(w[i]);
  }
  // Below 2^-100 the inverse would not be a float; such a group counts as zeros.
  if (!finite || largest < 0x1p-100f) {
    std::fill_n(out, n, int8_t{0});
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = static_cast<float>(kWeightLevels) / largest;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int8_t>(std::lrint(w[i] * inverse));
  return largest / static_cast<float>(kWeightLevels);
}

// How a row of activations whose largest |x| is `largest` is written: q = round(x · inverse),
// x ≈ q · step.
struct RowScale {
  float inverse = 0;  // 0: all q are zero
  float step = 0;     // NaN if the row has a value that is no number
};
inline RowScale ScaleOfRow(float largest) {
  constexpr auto kLevels = static_cast<float>(kActivationLevels);
  if (!std::isfinite(largest)) return {0, std::numeric_limits<float>::quiet_NaN()};
  if (largest < 0x1p-100f) return {};  // as above
  return {kLevels / largest, largest / kLevels};
}

}  // namespace sysone
