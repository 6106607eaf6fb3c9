// Matrix products of the CPU backend as fractions of this machine's arithmetic peak. Not part of the tests.
//
//   cmake --build build/release --target matmul_bench
//   build/release/bin/matmul_bench [MODEL] [cpu|cpu-onednn] [int8|bfloat16|float32] [threads, default 1] [rows…]
//
// MODEL: smollm2-135m, qwen3-0.6b or qwen2.5-1.5b: the projections of that model, layer after layer, so that weights come from
// memory as they do in a pass. Weights and activations are made up.
//
// The peak is that of float32 multiply-adds, or for int8 that of the instruction that multiplies, in registers alone. It is
// measured before and after every round, because shared machines change speed. Time is CPU time per thread, so that other
// programs on a shared machine do not count (with several threads the time that they wait for each other does). A line: medians
// over kRounds rounds, multiply and add counted as two, and the rate at which weights are read.
// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <array>
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

template <int kBytes>
using Floats [[gnu::vector_size(kBytes)]] = float;
template <int kBytes>
using Ints [[gnu::vector_size(kBytes)]] = int;

template <int kBytes>
[[gnu::always_inline]] inline float FloatChains() {
  Floats<kBytes> sums[kChains] = {}, factor = {}, term = {};
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
[[gnu::target("avx512f")]] float FloatChains512() { return FloatChains<64>(); }
[[gnu::target("avx2,fma")]] float FloatChains256() { return FloatChains<32>(); }
float FloatChains128() { return FloatChains<16>(); }

// A multiplication of pairs and an addition, or both in one instruction.
#define SYSONE_INT_CHAINS(bytes, multiply)                                   \
  Ints<bytes> sums[kChains] = {}, a = {}, b = {}, product = {};              \
  a += 0x00010002;                                                           \
  b += 0x00030001;                                                           \
  for (int64_t i = 0; i < kSteps; ++i) {                                     \
    _Pragma("GCC unroll 16") for (int c = 0; c < kChains; ++c) { multiply; } \
  }                                                                          \
  for (int c = 1; c < kChains; ++c) sums[0] += sums[c];                      \
  return static_cast<float>(sums[0][0] + product[0])

[[gnu::target("avx512f,avx512bw,avx512vnni")]] float VnniChains512() {
  SYSONE_INT_CHAINS(64, asm volatile("vpdpbusd %1, %2, %0" : "+v"(sums[c]) : "v"(a), "v"(b)));
}
[[gnu::target("avx512f,avx512bw")]] float ByteChains512() {
  SYSONE_INT_CHAINS(64, asm volatile("vpmaddubsw %1, %2, %0"
                                     : "=v"(product)
                                     : "v"(a), "v"(b));
                    sums[c] += product);
}
[[gnu::target("avx2")]] float ByteChains256() {
  SYSONE_INT_CHAINS(32, asm volatile("vpmaddubsw %1, %2, %0"
                                     : "=x"(product)
                                     : "x"(a), "x"(b));
                    sums[c] += product);
}

struct Chain {
  float (*run)();
  int products;  // of one step of one chain
};

Chain BestChain(bool integers) {
  if (integers && __builtin_cpu_supports("avx512vnni")) return {VnniChains512, 64};
  if (integers && __builtin_cpu_supports("avx512bw")) return {ByteChains512, 64};
  if (integers && __builtin_cpu_supports("avx2")) return {ByteChains256, 32};
  if (__builtin_cpu_supports("avx512f")) return {FloatChains512, 16};
  if (__builtin_cpu_supports("fma")) return {FloatChains256, 8};
  return {FloatChains128, 4};
}

// CPU time of all threads of this process.
double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// GOP/s of one thread.
double Peak(const Chain& chain) {
  const double start = CpuSeconds();
  volatile float keep = chain.run();
  static_cast<void>(keep);
  return 2.0 * chain.products * kChains * static_cast<double>(kSteps) / (CpuSeconds() - start) /
         1e9;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

struct Model {
  std::string name;
  int layers, hidden, qkv, attended, wide;
};
const Model kModels[] = {{"smollm2-135m", 30, 576, 960, 576, 1536},
                         {"qwen3-0.6b", 28, 1024, 4096, 2048, 3072},
                         {"qwen2.5-1.5b", 28, 1536, 2048, 1536, 8960}};

struct Projection {
  const char* name;
  int64_t in_cols, out_cols;
  std::vector<std::unique_ptr<Weight>> layers;
  double work(int rows) const { return 2.0 * rows * static_cast<double>(in_cols * out_cols); }
};

class Bench {
 public:
  Bench(Backend& backend, const Model& model, Chain chain, int threads, double weight_bytes)
      : backend_(backend),
        model_(model),
        chain_(chain),
        threads_(threads),
        weight_bytes_(weight_bytes),
        projections_{Projection{"qkv", model.hidden, model.qkv, {}},
                     Projection{"out", model.attended, model.hidden, {}},
                     Projection{"gate_up", model.hidden, 2 * model.wide, {}},
                     Projection{"down", model.wide, model.hidden, {}}} {
    for (Projection& p : projections_) {
      const auto values = [&p](int64_t, int64_t count, float* out) {
        for (int64_t i = 0; i < count * p.in_cols; ++i)
          out[i] = static_cast<float>(i % 16 - 8) * 0.01f;
      };
      for (int i = 0; i < model.layers; ++i)
        p.layers.push_back(backend.LoadWeight(p.out_cols, p.in_cols, values));
    }
  }

  void Measure(int rows) {
    std::vector<std::unique_ptr<Operand>> x;
    for (const Projection& p : projections_) x.push_back(MakeOperand(rows, p.in_cols));
    std::vector<std::unique_ptr<Tensor>> out;
    for (const Projection& p : projections_) out.push_back(backend_.NewTensor(rows, p.out_cols));
    // [projection; all][round]
    std::array<std::vector<double>, 5> rates, fractions;
    for (int round = -1; round < kRounds; ++round) {  // the first warms up
      const double before = Peak(chain_);
      std::array<double, 4> seconds{};
      for (size_t layer = 0; layer < static_cast<size_t>(model_.layers); ++layer) {
        for (size_t i = 0; i < projections_.size(); ++i) {
          const double start = CpuSeconds();
          backend_.MatMul(*x[i], *projections_[i].layers[layer], nullptr, rows, *out[i]);
          seconds[i] += (CpuSeconds() - start) / threads_;
        }
      }
      const double peak = threads_ * (before + Peak(chain_)) / 2;
      if (round < 0) continue;
      double work = 0, time = 0;
      for (size_t i = 0; i < 5; ++i) {
        const double own = i < 4 ? projections_[i].work(rows) * model_.layers : work;
        const double rate = own / (i < 4 ? seconds[i] : time) / 1e9;
        rates[i].push_back(rate);
        fractions[i].push_back(rate / peak);
        if (i == 4) break;
        work += own;
        time += seconds[i];
      }
    }
    for (size_t i = 0; i < 5; ++i) {
      const double rate = Median(rates[i]);
      std::printf("%4d rows, %-8s", rows, i < 4 ? projections_[i].name : "all");
      if (i < 4)
        std::printf("%5lld -> %5lld", static_cast<long long>(projections_[i].in_cols),
                    static_cast<long long>(projections_[i].out_cols));
      else
        std::printf("%14s", "");
      std::printf(": %7.1f GOP/s, %3.0f %% of the peak, %5.1f GB/s of weights\n", rate,
                  100 * Median(fractions[i]), rate / 2 / rows * weight_bytes_);
    }
    std::fflush(stdout);
  }

 private:
  std::unique_ptr<Operand> MakeOperand(int rows, int64_t cols) {
    auto gate_up = backend_.NewTensor(rows, 2 * cols);
    backend_.Upload(std::vector<float>(static_cast<size_t>(rows * 2 * cols), 1.0f), rows, *gate_up);
    auto x = backend_.NewOperand(rows, cols);
    backend_.GatedSilu(*gate_up, rows, *x);
    return x;
  }

  Backend& backend_;
  const Model model_;
  const Chain chain_;
  const int threads_;
  const double weight_bytes_;
  std::array<Projection, 4> projections_;
};

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "qwen3-0.6b";
  sysone::BackendOptions options;
  if (argc > 2) options.name = argv[2];
  if (argc > 3) options.dtype = argv[3];
  options.threads = argc > 4 ? std::max(1, std::atoi(argv[4])) : 1;
  std::vector<int> row_counts;
  for (int i = 5; i < argc; ++i) row_counts.push_back(std::max(1, std::atoi(argv[i])));
  if (row_counts.empty()) row_counts = {1, 4, 16, 60, 300, 1024};

  const auto model = std::ranges::find(sysone::kModels, wanted, &sysone::Model::name);
  auto backend = sysone::MakeBackend(options);
  if (model == std::end(sysone::kModels) || !backend.ok()) {
    std::fprintf(stderr, "%s\n",
                 backend.ok() ? "unknown model" : backend.status().message().c_str());
    return 1;
  }
  const bool integers = options.dtype == "auto" || options.dtype == "int8";
  const sysone::Chain chain = sysone::BestChain(integers);
  std::printf("%s; %s; peak of a thread %.1f GOP/s\n", (*backend)->Describe().c_str(),
              wanted.c_str(), sysone::Peak(chain));
  const double bytes = integers ? 1 : options.dtype == "float32" ? 4 : 2;
  sysone::Bench bench(**backend, *model, chain, options.threads, bytes);
  for (const int rows : row_counts) bench.Measure(rows);
  return 0;
}
