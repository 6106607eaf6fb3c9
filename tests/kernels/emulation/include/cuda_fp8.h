// Stands in for CUDA's header of this name where a CPU plays the device: the 8-bit floats e4m3 (largest value 448, no infinity).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "tests/kernels/emulation/vector_types.h"

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned;

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace sysone::emulation {

inline constexpr float kMostE4m3 = 448;

// Rounded to the nearest, ties to even; what is too large becomes ±448, or NaN if not saturated.
inline uint8_t RoundToE4m3(float x, bool saturate) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return static_cast<uint8_t>(sign | 0x7F);
  const float size = std::fabs(x);
  int exponent = -6;  // the smallest: below it lie the subnormals, in steps of 2^-9
  if (size >= 0x1p-6f) exponent = std::ilogb(size);
  const float steps = std::nearbyint(std::ldexp(size, 3 - exponent));
  if (std::ldexp(steps, exponent - 3) > kMostE4m3) {
    return static_cast<uint8_t>(sign | (saturate ? 0x7E : 0x7F));
  }
  // Eight steps a power of two, so that a step up from the last one carries into the exponent.
  return static_cast<uint8_t>(sign + (exponent + 6) * 8 + static_cast<int>(steps));
}

inline float FromE4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size = (bits & 0x7F) == 0x7F ? std::nanf("")
                     : exponent == 0       ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -size : size;
}

}  // namespace sysone::emulation

// e4m3 alone.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation,
                                                __nv_fp8_interpretation_t) {
  return sysone::emulation::RoundToE4m3(x, saturation == __NV_SATFINITE);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                                                     __nv_fp8_interpretation_t kind) {
  return static_cast<__nv_fp8x2_storage_t>(__nv_cvt_float_to_fp8(x.x, saturation, kind) |
                                           __nv_cvt_float_to_fp8(x.y, saturation, kind) << 8);
}

struct __nv_fp8_e4m3 {
  __nv_fp8_storage_t __x;

  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float x) : __x(sysone::emulation::RoundToE4m3(x, true)) {}
  explicit operator float() const { return sysone::emulation::FromE4m3(__x); }
};

struct __nv_fp8x4_e4m3 {
  __nv_fp8x4_storage_t __x;

  __nv_fp8x4_e4m3() = default;
  explicit __nv_fp8x4_e4m3(float4 x)
      : __x(__nv_fp8_e4m3(x.x).__x | unsigned{__nv_fp8_e4m3(x.y).__x} << 8 |
            unsigned{__nv_fp8_e4m3(x.z).__x} << 16 | unsigned{__nv_fp8_e4m3(x.w).__x} << 24) {}
  explicit operator float4() const {
    const auto part = [this](int shift) {
      return sysone::emulation::FromE4m3(static_cast<uint8_t>(__x >> shift));
    };
    return {part(0), part(8), part(16), part(24)};
  }
};
