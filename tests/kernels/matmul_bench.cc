// Matrix products of the CPU backend as fractions of this machine's float32 multiply-add peak. Not part of the tests.
//
//   cmake --build build/release --target matmul_bench
//   build/release/bin/matmul_bench [cpu|cpu-onednn] [bfloat16|float32] [threads, default 1]
//
// Time is CPU time per thread, so that other programs on a shared machine do not count (with several threads the time that they
// wait for each other does), and the peak is measured before and after every round, because shared machines change speed.
// Shapes: the projections of SmolLM2-135M (576, 1536) and Qwen2.5-1.5B (1536, 8960). A line: medians of kRounds rounds, and for one
// row the rate at which weights are read.
// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace sysone {
namespace {

constexpr int kRounds = 7;
constexpr int kChains = 10;  // two units of four cycles latency need eight
constexpr int64_t kSteps = 2000000;

template <int kLanes>
using Floats [[gnu::vector_size(kLanes * sizeof(float))]] = float;

template <int kLanes>
[[gnu::always_inline]] inline float Chains() {
  Floats<kLanes> sums[kChains] = {}, factor = {}, term = {};
  factor += 0.5f;
  term += 1.0f;
  asm volatile("" : "+x"(factor), "+x"(term));
  for (int64_t i = 0; i < kSteps; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c)
      sums[c] = sums[c] * factor + term;  // contracted to one instruction
  }
  for (int c = 1; c < kChains; ++c) sums[0] += sums[c];
  return sums[0][0];
}
[[gnu::target("avx512f")]] float Chains512() { return Chains<16>(); }
[[gnu::target("avx2,fma")]] float Chains256() { return Chains<8>(); }
float Chains128() { return Chains<4>(); }

// CPU time of all threads of this process.
double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// GFLOP/s of one thread, multiply and add counted as two.
double Peak() {
  const bool wide = __builtin_cpu_supports("avx512f"), fma = __builtin_cpu_supports("fma");
  const int lanes = wide ? 16 : fma ? 8 : 4;
  const double start = CpuSeconds();
  volatile float keep = wide ? Chains512() : fma ? Chains256() : Chains128();
  static_cast<void>(keep);
  return 2.0 * lanes * kChains * static_cast<double>(kSteps) / (CpuSeconds() - start) / 1e9;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

void Measure(Backend& backend, int threads, int64_t out_cols, int64_t in_cols,
             double weight_bytes) {
  auto weight =
      backend.LoadWeight(out_cols, in_cols, [in_cols](int64_t, int64_t count, float* out) {
        for (int64_t i = 0; i < count * in_cols; ++i)
          out[i] = static_cast<float>(i % 17 - 8) * 0.01f;
      });
  for (const int32_t rows : {1, 16, 60, 300}) {
    auto gate_up = backend.NewTensor(rows, 2 * in_cols);
    backend.Upload(std::vector<float>(static_cast<size_t>(rows * 2 * in_cols), 1.0f), rows,
                   *gate_up);
    auto x = backend.NewOperand(rows, in_cols);
    backend.GatedSilu(*gate_up, rows, *x);
    auto out = backend.NewTensor(rows, out_cols);
    const double work = 2.0 * rows * static_cast<double>(out_cols * in_cols);
    const int repeats = std::max(1, static_cast<int>(5e8 / work));
    std::vector<double> rates, fractions;
    for (int round = -1; round < kRounds; ++round) {  // the first warms up
      const double before = Peak();
      const double start = CpuSeconds();
      for (int i = 0; i < repeats; ++i) backend.MatMul(*x, *weight, nullptr, rows, *out);
      const double rate = work * repeats / ((CpuSeconds() - start) / threads) / 1e9;
      const double peak = threads * (before + Peak()) / 2;
      if (round < 0) continue;
      rates.push_back(rate);
      fractions.push_back(rate / peak);
    }
    std::printf("%5lld -> %5lld, %3d rows: %7.1f GFLOP/s, %3.0f %% of the peak",
                static_cast<long long>(in_cols), static_cast<long long>(out_cols), rows,
                Median(rates), 100 * Median(fractions));
    if (rows == 1) std::printf(", %.1f GB/s of weights", Median(rates) / 2 * weight_bytes);
    std::printf("\n");
  }
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  sysone::BackendOptions options;
  if (argc > 1) options.name = argv[1];
  if (argc > 2) options.dtype = argv[2];
  options.threads = argc > 3 ? std::max(1, std::atoi(argv[3])) : 1;
  auto backend = sysone::MakeBackend(options);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().message().c_str());
    return 1;
  }
  std::printf("%s; peak of a thread %.1f GFLOP/s\n", (*backend)->Describe().c_str(),
              sysone::Peak());
  const double bytes = options.dtype == "float32" ? 4 : 2;
  for (const auto& [out_cols, in_cols] :
       {std::pair{576, 576}, {3072, 576}, {576, 1536}, {2048, 1536}, {17920, 1536}, {1536, 8960}})
    sysone::Measure(**backend, options.threads, out_cols, in_cols, bytes);
  return 0;
}
