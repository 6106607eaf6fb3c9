// Stands in for CUDA's header of this name where a CPU plays the device: bfloat16, rounded to the nearest even.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "tests/kernels/emulation/vector_types.h"

namespace sysone::emulation {
inline uint16_t RoundToBfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;  // CUDA's NaN
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
}  // namespace sysone::emulation

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct __nv_bfloat16 {
  uint16_t bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(sysone::emulation::RoundToBfloat16(x)) {}
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits(raw.x) {}
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

struct __attribute__((aligned(4))) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return static_cast<float>(x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return __floats2bfloat162_rn(x.x, x.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {float(x.x), float(x.y)}; }
inline float __low2float(__nv_bfloat162 x) { return static_cast<float>(x.x); }
inline float __high2float(__nv_bfloat162 x) { return static_cast<float>(x.y); }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
