// What kernels call: their indices, barriers, calls of a warp, atomics, loads and arithmetic. Of CUDA's functions those that
// kernels/cuda/ uses; a new one belongs here with CUDA's signature (and a place at its end, where it waits for others).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tests/kernels/emulation/block.h"
#include "tests/kernels/emulation/vector_types.h"

extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread dim3 blockDim;
extern __thread dim3 gridDim;
inline constexpr int warpSize = 32;

// --- Barriers. -----------------------------------------------------------------------------------------------------------

inline void __syncthreads(sysone::emulation::Place place = sysone::emulation::Place::current()) {
  sysone::emulation::WaitForBlock(place);
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFF,
                       sysone::emulation::Place place = sysone::emulation::Place::current()) {
  sysone::emulation::WaitForLanes(
      "__syncwarp", mask, nullptr, [](void* const*, uint32_t) {}, place);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// --- Values from other lanes. ----------------------------------------------------------------------------------------------

namespace sysone::emulation {

template <class T>
struct Shuffle {
  T mine;
  int from;  // a lane; one that is not in the mask gives what the hardware leaves open
  T received;

  static void All(void* const* brought, uint32_t mask) {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
      Shuffle& to = *static_cast<Shuffle*>(brought[std::countr_zero(rest)]);
      const Shuffle* from = static_cast<const Shuffle*>(brought[to.from]);
      if (from) {
        to.received = from->mine;
      } else {
        std::fill_n(reinterpret_cast<unsigned char*>(&to.received), sizeof(T),
                    static_cast<unsigned char>(0xFF));
      }
    }
  }
};

inline int LaneNow() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
                          32);
}

template <class T>
T ShuffleFrom(const char* what, uint32_t mask, T value, int from, const Place& place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  Shuffle<T> shuffle{value, from, value};
  WaitForLanes(what, mask, &shuffle, Shuffle<T>::All, place);
  return shuffle.received;
}

struct Vote {
  bool mine;
  uint32_t votes;

  static void All(void* const* brought, uint32_t mask) {
    uint32_t votes = 0;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (mask >> lane & 1) votes |= uint32_t{static_cast<Vote*>(brought[lane])->mine} << lane;
    }
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if (mask >> lane & 1) static_cast<Vote*>(brought[lane])->votes = votes;
    }
  }
};

inline uint32_t VotesOf(const char* what, uint32_t mask, bool mine, const Place& place) {
  Vote vote{mine, 0};
  WaitForLanes(what, mask, &vote, Vote::All, place);
  return vote.votes;
}

}  // namespace sysone::emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32,
              sysone::emulation::Place place = sysone::emulation::Place::current()) {
  const int first = sysone::emulation::LaneNow() & ~(width - 1);
  return sysone::emulation::ShuffleFrom("__shfl_sync", mask, value, first + (lane & (width - 1)),
                                        place);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  sysone::emulation::Place place = sysone::emulation::Place::current()) {
  const int lane = sysone::emulation::LaneNow(), from = lane ^ bits;
  const int end = (lane & ~(width - 1)) + width;  // earlier groups may be read, later ones not
  return sysone::emulation::ShuffleFrom("__shfl_xor_sync", mask, value, from < end ? from : lane,
                                        place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32,
                   sysone::emulation::Place place = sysone::emulation::Place::current()) {
  const int lane = sysone::emulation::LaneNow(), from = lane + static_cast<int>(by);
  const int end = (lane & ~(width - 1)) + width;
  return sysone::emulation::ShuffleFrom("__shfl_down_sync", mask, value, from < end ? from : lane,
                                        place);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32,
                 sysone::emulation::Place place = sysone::emulation::Place::current()) {
  const int lane = sysone::emulation::LaneNow(), from = lane - static_cast<int>(by);
  const int first = lane & ~(width - 1);
  return sysone::emulation::ShuffleFrom("__shfl_up_sync", mask, value, from >= first ? from : lane,
                                        place);
}

inline unsigned __ballot_sync(
    unsigned mask, int predicate,
    sysone::emulation::Place place = sysone::emulation::Place::current()) {
  return sysone::emulation::VotesOf("__ballot_sync", mask, predicate != 0, place);
}
inline int __any_sync(unsigned mask, int predicate,
                      sysone::emulation::Place place = sysone::emulation::Place::current()) {
  return sysone::emulation::VotesOf("__any_sync", mask, predicate != 0, place) != 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      sysone::emulation::Place place = sysone::emulation::Place::current()) {
  return sysone::emulation::VotesOf("__all_sync", mask, predicate != 0, place) == mask;
}

// --- Atomics: the threads of a block never run at the same time. --------------------------------------------------------------

namespace sysone::emulation {
template <class T>
T Replace(T* at, T value) {
  const T before = *at;
  *at = value;
  return before;
}
}  // namespace sysone::emulation

inline int atomicAdd(int* at, int value) { return sysone::emulation::Replace(at, *at + value); }
inline unsigned atomicAdd(unsigned* at, unsigned value) {
  return sysone::emulation::Replace(at, *at + value);
}
inline int atomicMax(int* at, int value) {
  return sysone::emulation::Replace(at, std::max(*at, value));
}
inline unsigned atomicMax(unsigned* at, unsigned value) {
  return sysone::emulation::Replace(at, std::max(*at, value));
}
inline int atomicMin(int* at, int value) {
  return sysone::emulation::Replace(at, std::min(*at, value));
}
inline int atomicExch(int* at, int value) { return sysone::emulation::Replace(at, value); }
inline unsigned atomicCAS(unsigned* at, unsigned expected, unsigned value) {
  return sysone::emulation::Replace(at, *at == expected ? value : *at);
}
inline unsigned atomicInc(unsigned* at, unsigned most) {
  return sysone::emulation::Replace(at, *at >= most ? 0 : *at + 1);
}

// --- Loads and stores that say what the cache should do. ------------------------------------------------------------------------

template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
template <class T>
void __stcg(T* at, T value) {
  *at = value;
}

// --- Arithmetic. ----------------------------------------------------------------------------------------------------------------

// Those of the C library are there by their own names.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(static_cast<unsigned>(x)) + 1 : 0; }

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
