// The numbers behind --dtype int8, shared by the backends.
//
//   weights      w ≈ (low + q · scale) · unit, 0 ≤ q ≤ Int8Levels::weight, for kInt8Group neighbours of an output column; the
//                scale is an integer, the unit belongs to the column
//   activations  x ≈ q · step, |q| ≤ Int8Levels::activation, for kInt8Group neighbours of a row; if these are bytes, except
//                peaks, at most kPeaks of them, which are far above the rest of the row and stay floats
//   product      Σ q q as an exact integer for each group, times step and scale, plus low · step · Σ q of the activations,
//                summed over the groups in their order; then each peak times its weight; all times unit
//
// Files keep blocks of 32 weights as low + level · scale. A group finds such levels again.
//
// kCoarse, for files of 4 and 5 bits: nothing is lost of these, and where levels are no more than 16, half a byte holds a code.
// Seven bits for others among them are what instructions want that multiply bytes and add two neighbours in 16 bits:
// 2 · 127 · 127 fits.
//
// kFine, for all other files: 128 levels would lose more of them than all else together, and what is left then does not bear
// activations of 8 bits. Weights are bytes, 256 levels, which lose nothing of Q8_0; activations are words of 16 bits. Products of
// words take twice as many instructions as those of bytes, but no more than products of bytes that carry a sign apart, and they
// need no peaks.
//
// What all of it costs in exactness and time is in PERFORMANCE.md.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/dtype.h"

namespace sysone {

inline constexpr int64_t kInt8Group = 32;
inline constexpr int32_t kHalfByteLevels =
    15;  // the largest code of a weight that half a byte holds
inline constexpr int32_t kScaleLevels = 32767;  // the largest scale of a group

struct Int8Levels {
  int32_t weight;      // the largest code of a weight
  int32_t activation;  // the largest |code| of an activation
};
inline constexpr Int8Levels kCoarseLevels = {127, 127}, kFineLevels = {255, 32767};
// What codes the weights of such files, and the activations that they are multiplied by, get.
inline constexpr Int8Levels LevelsOf(WeightGrain grain) {
  return grain == WeightGrain::kCoarse ? kCoarseLevels : kFineLevels;
}

// Two products, and half of a group's products of half bytes, fit 16 bits.
static_assert(2 * kCoarseLevels.weight * kCoarseLevels.activation <=
              std::numeric_limits<int16_t>::max());
static_assert(kInt8Group / 2 * kHalfByteLevels * kCoarseLevels.activation <=
              std::numeric_limits<int16_t>::max());
// A group's sum of products of half bytes times its scale fits 32 bits.
static_assert(int64_t{kInt8Group} * kHalfByteLevels * kCoarseLevels.activation * kScaleLevels <=
              std::numeric_limits<int32_t>::max());
// A group's sum of products of words fits 32 bits, and the sum of its activations is exact as a float.
static_assert(int64_t{kInt8Group} * kFineLevels.weight * kFineLevels.activation <=
              std::numeric_limits<int32_t>::max());
static_assert(kInt8Group * kFineLevels.activation <= 1 << std::numeric_limits<float>::digits);

// Of one group of weights: w ≈ low + q · scale.
struct Int8Scale {
  float scale = 0;
  float low = 0;
};
inline float WeightOf(const Int8Scale& scale, uint8_t q) {
  return scale.low + scale.scale * static_cast<float>(q);
}

// How many equal steps lead from 0 to 1 such that every value[i] in [0, 1] lies on one: the fewest, up to `most`, or `most`
// if there are none. A thousandth of a step is allowed, which is more than float32 rounds.
inline int32_t StepsOf(const float* value, int64_t n, int32_t most) {
  for (int32_t steps = 1; steps < most; ++steps) {
    int64_t on = 0;
    for (; on < n; ++on) {
      const float at = value[on] * static_cast<float>(steps);
      const float nearest = (at + 0x1.8p23f) - 0x1.8p23f;
      if (std::abs(at - nearest) > 0x1p-10f) break;
    }
    if (on == n) return steps;
  }
  return most;
}

// Fills out[n], n ≤ kInt8Group, with codes up to `most`. A group that has a value which is no number gets scale and low NaN, so that its column's
// results are none either.
inline Int8Scale QuantiseGroup(const float* w, int64_t n, int32_t most, uint8_t* out) {
  float least = w[0], largest = w[0];
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    least = std::min(least, w[i]);
    largest = std::max(largest, w[i]);
    finite &= std::isfinite(w[i]);
  }
  std::fill_n(out, n, uint8_t{0});
  const float range = largest - least;
  if (!finite || !std::isfinite(range)) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    return {kNan, kNan};
  }
  // Below 2^-100 the inverse would not be a float; such a group counts as equal values.
  if (range < 0x1p-100f) return {0, std::abs(least) < 0x1p-100f ? 0 : least};
  float place[kInt8Group];
  for (int64_t i = 0; i < n; ++i) place[i] = (w[i] - least) / range;
  const auto steps = static_cast<float>(StepsOf(place, n, most));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(std::lrint(place[i] * steps));
  return {range / steps, least};
}

// Fills codes, as many as w has, each up to `most`, and groups. The column's unit, NaN if a value is no number; else a power of two, so that scales
// of up to 14 bits that are not far below the column's largest one stay as they are: those of files have 11.
inline float QuantiseColumn(std::span<const float> w, int32_t most, uint8_t* codes,
                            Int8Scale* groups) {
  const auto n = static_cast<int64_t>(w.size());
  float largest = 0;
  bool numbers = true;
  Int8Scale* end = groups;
  for (int64_t k = 0; k < n; k += kInt8Group, ++end) {
    *end = QuantiseGroup(w.data() + k, std::min(kInt8Group, n - k), most, codes + k);
    numbers &= !std::isnan(end->scale);
    // Lows count only to keep them from becoming infinite.
    largest = std::max({largest, end->scale, std::abs(end->low) * 0x1p-64f});
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  float unit = std::ldexp(1.0f, exponent - 15);
  if (std::round(largest / unit) > kScaleLevels) unit *= 2;
  for (Int8Scale* group = groups; group < end; ++group)
    *group = numbers ? Int8Scale{std::round(group->scale / unit), group->low / unit} : Int8Scale{};
  return numbers ? unit : std::numeric_limits<float>::quiet_NaN();
}

// Where activations are bytes: a peak is more than kPeak times the mean |x| of its row. Trained models have some in fixed places, and one would take all
// levels from its 31 neighbours. A normal distribution has one in 6 · 10^9.
inline constexpr float kPeak = 8;
inline constexpr int kPeaks = 2;  // of a group, the largest ones

// How the other activations of a group, the largest |x| of which is `largest`, are written: q = round(x · inverse), x ≈ q · step,
// |q| ≤ most.
struct ActivationScale {
  float inverse = 0;  // 0: all q are zero
  float step = 0;     // NaN if the group has a value that is no number
};
inline ActivationScale ScaleOfActivations(float largest, int32_t most) {
  const auto levels = static_cast<float>(most);
  if (!std::isfinite(largest)) return {0, std::numeric_limits<float>::quiet_NaN()};
  if (largest < 0x1p-100f) return {};  // as above
  return {levels / largest, largest / levels};
}

// What peaks of a row are above; nothing is if the row has a value that is no number.
inline float FloorOfPeaks(float mean_magnitude) {
  if (!std::isfinite(mean_magnitude)) return std::numeric_limits<float>::infinity();
  return std::max(kPeak * mean_magnitude, 0x1p-100f);  // below that, values count as zero
}

// An activation that is no code, but that of column k.
struct Peak {
  float value = 0;
  int32_t k = 0;
};

}  // namespace sysone
