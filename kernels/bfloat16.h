// Scalar conversions between float32 and bfloat16 (the upper half of a float32), for packing and
// for the reference.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace sysone {

// Round to nearest, ties to even: relative error at most 2^-8 for normal numbers. NaN stays NaN,
// overflow becomes infinity.
inline uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Exact.
inline float FromBfloat16(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

}  // namespace sysone
