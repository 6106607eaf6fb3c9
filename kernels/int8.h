// The numbers behind --dtype int8, shared by the backends.
//
//   weights      w ≈ q · scale, |q| ≤ 127, one scale an output column
//   activations  x ≈ q · step, |q| ≤ levels, one step a row, as many levels as the depth of the product allows
//   product      Σ q q as one exact int32 over the whole depth, then times scale and step
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sysone {

inline constexpr int32_t kWeightLevels = 127;

// Largest |q| of an activation such that no sum of in_cols products with weights leaves int32:
// 32767 up to 516 columns, 11008 at 1536, 1887 at 8960.
inline int32_t ActivationLevels(int64_t in_cols) {
  constexpr int64_t kSum = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::min<int64_t>(32767, kSum / (kWeightLevels * in_cols)));
}

// Fills out[n] and returns the scale. A column that has a value which is no number gets the scale
// NaN, so that its results are none either.
inline float QuantiseColumn(const float* w, int64_t n, int8_t* out) {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::abs(w[i]));
    finite &= std::isfinite(w[i]);
  }
  // Below 2^-100 the inverse would not be a float; such a column counts as zeros.
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
inline RowScale ScaleOfRow(float largest, int32_t levels) {
  if (!std::isfinite(largest)) return {0, std::numeric_limits<float>::quiet_NaN()};
  if (largest < 0x1p-100f) return {};  // as above
  return {static_cast<float>(levels) / largest, largest / static_cast<float>(levels)};
}

}  // namespace sysone
