// The numbers behind --dtype int8, shared by the backends.
//
//   weights      w ≈ middle + q · scale, -128 ≤ q ≤ 127, for kInt8Group neighbours of an output column
//   activations  x ≈ q · step, |q| ≤ 32767, one step a row
//   product      Σ q q as an exact int32 for each group, times its scale, plus middle · Σ q of the
//                activations, summed over the groups in their order, times step
//
// Files of 4 and 5 bits keep blocks of 32 weights as low + level · step. A group finds such levels
// again, so that nothing is lost of these files. What the coarser ways cost is in PERFORMANCE.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sysone {

inline constexpr int64_t kInt8Group = 32;
inline constexpr int32_t kWeightSteps =
    255;  // between the least and the largest of a group, at most
inline constexpr int32_t kActivationLevels = 32767;
static_assert(kInt8Group * 128 * kActivationLevels <= std::numeric_limits<int32_t>::max());

// Of one group of weights: w ≈ middle + q · scale.
struct Int8Scale {
  float scale = 0;
  float middle = 0;
};

// How many equal steps lead from 0 to 1 such that every value[i] in [0, 1] lies on one: the fewest, up to kWeightSteps, or
// kWeightSteps if there are none. A thousandth of a step is allowed, which is more than float32 rounds.
inline int32_t StepsOf(const float* value, int64_t n) {
  for (int32_t steps = 1; steps < kWeightSteps; ++steps) {
    int64_t on = 0;
    for (; on < n; ++on) {
      const float at = value[on] * static_cast<float>(steps);
      const float nearest = (at + 0x1.8p23f) - 0x1.8p23f;
      if (std::abs(at - nearest) > 0x1p-10f) break;
    }
    if (on == n) return steps;
  }
  return kWeightSteps;
}

// Fills out[n], n ≤ kInt8Group. A group that has a value which is no number gets scale and middle NaN, so that its column's
// results are none either.
inline Int8Scale QuantiseGroup(const float* w, int64_t n, int8_t* out) {
  float least = w[0], largest = w[0];
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    least = std::min(least, w[i]);
    largest = std::max(largest, w[i]);
    finite &= std::isfinite(w[i]);
  }
  std::fill_n(out, n, int8_t{0});
  const float range = largest - least;
  if (!finite || !std::isfinite(range)) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    return {kNan, kNan};
  }
  // Below 2^-100 the inverse would not be a float; such a group counts as equal values.
  if (range < 0x1p-100f) return {0, std::abs(least) < 0x1p-100f ? 0 : least};
  float place[kInt8Group];
  for (int64_t i = 0; i < n; ++i) place[i] = (w[i] - least) / range;
  const int32_t steps = StepsOf(place, n);
  const float scale = range / static_cast<float>(steps);
  // The code 0 goes to the value nearest to 0, as far as the others allow, so that the middle takes little part.
  const float zero = std::clamp(-least / scale, static_cast<float>(std::max(0, steps - 127)),
                                static_cast<float>(std::min(steps, 128)));
  const auto offset = static_cast<int32_t>(std::lrint(zero));
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<int8_t>(std::lrint(place[i] * static_cast<float>(steps)) - offset);
  return {scale, least + static_cast<float>(offset) * scale};
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
