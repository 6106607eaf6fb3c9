// Comparisons of float arrays that cannot pass by accident: shapes must agree, NaN equals nothing,
// infinities must match in sign.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace sysone {

// |got[i] - want[i]| ≤ tolerance[i] everywhere. A tolerance that is not finite fails, too.
inline ::testing::AssertionResult Within(std::span<const float> got, std::span<const double> want,
                                         std::span<const double> tolerance) {
  if (got.size() != want.size() || got.size() != tolerance.size())
    return ::testing::AssertionFailure() << "sizes " << got.size() << ", " << want.size() << ", "
                                         << tolerance.size() << " differ";
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i], w = want[i], t = tolerance[i];
    const bool same_infinity = std::isinf(g) && std::isinf(w) && std::signbit(g) == std::signbit(w);
    if (std::isfinite(t) && (same_infinity || std::abs(g - w) <= t)) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << got.size() << ": got " << g << ", want " << w
           << ", off by " << std::abs(g - w) << ", tolerance " << t;
  }
  return ::testing::AssertionSuccess();
}

// The same bits, which for NaN means the same NaN, and tells 0 from -0.
inline ::testing::AssertionResult SameBits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure()
           << "sizes " << a.size() << " and " << b.size() << " differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << ": " << a[i] << " is not " << b[i]
             << " (apart by " << a[i] - b[i] << ")";
  }
  return ::testing::AssertionSuccess();
}

}  // namespace sysone
