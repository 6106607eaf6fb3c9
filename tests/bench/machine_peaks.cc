// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/machine_peaks.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace sysone {
namespace {

constexpr int kChains = 12;  // independent sums: two units of four to five cycles latency need ten
constexpr int64_t kSteps = 1'500'000;

template <class Element, int kBytes>
using Lanes [[gnu::vector_size(kBytes)]] = Element;

// kSteps steps of kChains chains; `multiply` multiplies a and b and adds to sum. The registers are given their values by
// assembly, so that the compiler cannot know them.
#define SYSONE_CHAINS(Element, bytes, multiply)                  \
  Lanes<Element, bytes> sums[kChains] = {}, a = {}, b = {};      \
  asm volatile("" : "+v"(a), "+v"(b));                           \
  for (int64_t i = 0; i < kSteps; ++i) {                         \
    _Pragma("GCC unroll 16") for (int c = 0; c < kChains; ++c) { \
      auto& sum = sums[c];                                       \
      multiply;                                                  \
    }                                                            \
  }                                                              \
  _Pragma("GCC unroll 16") for (auto& sum : sums) asm volatile("" : "+v"(sum))

#define SYSONE_FMA asm volatile("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b))
#define SYSONE_DOT asm volatile("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"(a), "v"(b))
#define SYSONE_BYTES                                                      \
  asm volatile("vpmaddubsw %1, %2, %0" : "=v"(product) : "v"(a), "v"(b)); \
  sum += product

[[gnu::target("avx512f")]] void Fma512() { SYSONE_CHAINS(float, 64, SYSONE_FMA); }
[[gnu::target("avx2,fma")]] void Fma256() { SYSONE_CHAINS(float, 32, SYSONE_FMA); }
void MultiplyAdd128() { SYSONE_CHAINS(float, 16, sum = sum * a + b); }
[[gnu::target("avx512f,avx512bw,avx512vnni")]] void Dot512() { SYSONE_CHAINS(int, 64, SYSONE_DOT); }
[[gnu::target("avx512f,avx512bw")]] void Bytes512() {
  Lanes<int16_t, 64> product;
  SYSONE_CHAINS(int16_t, 64, SYSONE_BYTES);
}
[[gnu::target("avx2")]] void Bytes256() {
  Lanes<int16_t, 32> product;
  SYSONE_CHAINS(int16_t, 32, SYSONE_BYTES);
}

struct Loop {
  void (*run)();
  int products;  // of one step of one chain
  const char* instruction;
};

MachinePeak Measure(const Loop& loop, int threads) {
  std::atomic<int> arrived{0};
  std::vector<double> seconds(static_cast<size_t>(threads));
  std::vector<std::thread> others;
  const auto measure = [&](size_t t) {
    arrived.fetch_add(1);
    while (arrived.load() < threads) {  // all at once: none has a core that the others left idle
    }
    const auto begin = std::chrono::steady_clock::now();
    loop.run();
    seconds[t] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (size_t t = 1; t < seconds.size(); ++t) others.emplace_back(measure, t);
  measure(0);
  for (std::thread& other : others) other.join();
  double rate = 0;
  for (const double s : seconds)
    rate += 2.0 * loop.products * kChains * static_cast<double>(kSteps) / s / 1e9;
  return {loop.instruction, rate};
}

}  // namespace

MachinePeak FloatPeak(int threads) {
  if (__builtin_cpu_supports("avx512f"))
    return Measure({Fma512, 16, "vfmadd231ps, 512 bits"}, threads);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return Measure({Fma256, 8, "vfmadd231ps, 256 bits"}, threads);
  return Measure({MultiplyAdd128, 4, "multiply and add, 128 bits"}, threads);
}

MachinePeak IntegerPeak(int threads) {
  if (__builtin_cpu_supports("avx512vnni"))
    return Measure({Dot512, 64, "vpdpbusd, 512 bits"}, threads);
  if (__builtin_cpu_supports("avx512bw"))
    return Measure({Bytes512, 64, "vpmaddubsw and vpaddw, 512 bits"}, threads);
  if (__builtin_cpu_supports("avx2"))
    return Measure({Bytes256, 32, "vpmaddubsw and vpaddw, 256 bits"}, threads);
  return FloatPeak(threads);  // nothing better is used there either
}

}  // namespace sysone
