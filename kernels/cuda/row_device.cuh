// What kernels on rows share: loads and stores of a few neighbouring values as float32, and reductions over a warp and a block in
// a fixed order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace sysone {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Whether rows of `cols` values of `value_bytes` each that start at `base` all start on 16 bytes. Null is.
inline bool RowsOn16Bytes(const void* base, int64_t cols, int64_t value_bytes) {
  return reinterpret_cast<uintptr_t>(base) % 16 == 0 && cols * value_bytes % 16 == 0;
}

// --- N neighbouring values. The address is a multiple of their size, but of 16 bytes at most.

__device__ inline void LoadValues(const float* from, float (&to)[1]) { to[0] = *from; }
__device__ inline void LoadValues(const float* from, float (&to)[4]) {
  const float4 v = *reinterpret_cast<const float4*>(from);
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
__device__ inline void LoadValues(const float* from, float (&to)[8]) {
  const float4 a = *reinterpret_cast<const float4*>(from);
  const float4 b = *reinterpret_cast<const float4*>(from + 4);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
__device__ inline void LoadValues(const __nv_bfloat16* from, float (&to)[1]) {
  to[0] = __bfloat162float(*from);
}
__device__ inline void LoadValues(const __nv_bfloat16* from, float (&to)[8]) {
  const uint4 v = *reinterpret_cast<const uint4*>(from);
  const unsigned pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // A bfloat16 is the upper half of a float32; the first of a pair lies in the lower half.
    to[2 * i] = __uint_as_float(pairs[i] << 16);
    to[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
  }
}
// Sums of products of codes: rounded to float32.
__device__ inline void LoadValues(const int32_t* from, float (&to)[1]) {
  to[0] = static_cast<float>(*from);
}
__device__ inline void LoadValues(const int32_t* from, float (&to)[4]) {
  const int4 v = *reinterpret_cast<const int4*>(from);
  to[0] = static_cast<float>(v.x), to[1] = static_cast<float>(v.y);
  to[2] = static_cast<float>(v.z), to[3] = static_cast<float>(v.w);
}

__device__ inline void StoreValues(const float (&from)[1], float* to) { *to = from[0]; }
__device__ inline void StoreValues(const float (&from)[4], float* to) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}
__device__ inline void StoreValues(const float (&from)[8], float* to) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(from[4], from[5], from[6], from[7]);
}
struct alignas(8) FourBfloat16 {
  __nv_bfloat162 low, high;
};
__device__ inline void StoreValues(const float (&from)[1], __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(from[0]);
}
__device__ inline void StoreValues(const float (&from)[4], __nv_bfloat16* to) {
  *reinterpret_cast<FourBfloat16*>(to) = {__floats2bfloat162_rn(from[0], from[1]),
                                          __floats2bfloat162_rn(from[2], from[3])};
}
__device__ inline int8_t Int8Code(float value) {
  return static_cast<int8_t>(__float2int_rn(value));
}
__device__ inline void StoreValues(const float (&from)[1], int8_t* to) { *to = Int8Code(from[0]); }
__device__ inline void StoreValues(const float (&from)[4], int8_t* to) {
  *reinterpret_cast<char4*>(to) =
      make_char4(Int8Code(from[0]), Int8Code(from[1]), Int8Code(from[2]), Int8Code(from[3]));
}
struct alignas(4) FourFp8 {
  __nv_fp8_e4m3 values[4];
};
__device__ inline void StoreValues(const float (&from)[1], __nv_fp8_e4m3* to) {
  *to = __nv_fp8_e4m3(from[0]);
}
__device__ inline void StoreValues(const float (&from)[4], __nv_fp8_e4m3* to) {
  *reinterpret_cast<FourFp8*>(to) = {{__nv_fp8_e4m3(from[0]), __nv_fp8_e4m3(from[1]),
                                      __nv_fp8_e4m3(from[2]), __nv_fp8_e4m3(from[3])}};
}

// --- Reductions. Every thread gets the result.

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; }
};

// Over groups of `lanes` neighbouring lanes, a power of two; all lanes of the warp call.
template <class T, class Combine>
__device__ T ReduceLanes(T value, Combine combine, int lanes = kWarp) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

// Over all threads of the block, a multiple of 32 of them, at most 1024. `shared`: room for 32 values that nothing else uses from
// the last barrier before the call until the next one behind it. `none` changes no result.
template <class T, class Combine>
__device__ T ReduceBlock(T value, Combine combine, T none, T* shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = ReduceLanes(value, combine);
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  const int warps = blockDim.x / kWarp;
  return ReduceLanes(lane < warps ? shared[lane] : none, combine);
}

}  // namespace sysone
