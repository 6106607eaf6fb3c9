// CUDA's words before functions and variables, and its small vectors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
// Of a block: blocks of one host thread run one after the other. block.cc defines it.
#define __shared__ __thread

#define SYSONE_EMULATED_VECTOR2(name, type, bytes) \
  struct __attribute__((aligned(bytes))) name {    \
    type x, y;                                     \
  };                                               \
  inline name make_##name(type x, type y) { return name{x, y}; }
#define SYSONE_EMULATED_VECTOR3(name, type) \
  struct name {                             \
    type x, y, z;                           \
  };                                        \
  inline name make_##name(type x, type y, type z) { return name{x, y, z}; }
#define SYSONE_EMULATED_VECTOR4(name, type, bytes) \
  struct __attribute__((aligned(bytes))) name {    \
    type x, y, z, w;                               \
  };                                               \
  inline name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }

SYSONE_EMULATED_VECTOR2(char2, signed char, 2)
SYSONE_EMULATED_VECTOR2(uchar2, unsigned char, 2)
SYSONE_EMULATED_VECTOR2(short2, short, 4)
SYSONE_EMULATED_VECTOR2(ushort2, unsigned short, 4)
SYSONE_EMULATED_VECTOR2(int2, int, 8)
SYSONE_EMULATED_VECTOR2(uint2, unsigned, 8)
SYSONE_EMULATED_VECTOR2(float2, float, 8)
SYSONE_EMULATED_VECTOR2(double2, double, 16)
SYSONE_EMULATED_VECTOR2(longlong2, long long, 16)
SYSONE_EMULATED_VECTOR2(ulonglong2, unsigned long long, 16)
SYSONE_EMULATED_VECTOR3(int3, int)
SYSONE_EMULATED_VECTOR3(uint3, unsigned)
SYSONE_EMULATED_VECTOR3(float3, float)
SYSONE_EMULATED_VECTOR4(char4, signed char, 4)
SYSONE_EMULATED_VECTOR4(uchar4, unsigned char, 4)
SYSONE_EMULATED_VECTOR4(short4, short, 8)
SYSONE_EMULATED_VECTOR4(ushort4, unsigned short, 8)
SYSONE_EMULATED_VECTOR4(int4, int, 16)
SYSONE_EMULATED_VECTOR4(uint4, unsigned, 16)
SYSONE_EMULATED_VECTOR4(float4, float, 16)

#undef SYSONE_EMULATED_VECTOR2
#undef SYSONE_EMULATED_VECTOR3
#undef SYSONE_EMULATED_VECTOR4

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_count = 1, unsigned y_count = 1, unsigned z_count = 1)
      : x(x_count), y(y_count), z(z_count) {}
  constexpr dim3(uint3 count) : x(count.x), y(count.y), z(count.z) {}
};
