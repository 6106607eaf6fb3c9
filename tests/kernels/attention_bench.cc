// What a layer does between its two big products: rotation, storing keys and values, attention. Not part of the tests.
//
//   cmake --build build/release --target attention_bench
//   build/release/bin/attention_bench [cpu|reference] [threads, default all] [auto|portable|avx2|…]
//
// Shapes: Qwen3-0.6B (16 heads on 8, 128 wide, with norms), SmolLM2-135M (9 on 3, 64 wide), Qwen2.5-1.5B (12 on 2, 128 wide).
// Batches: one prompt of a length, and branches over a prefix of 300 rows that is stored already. A line: medians of kRounds
// rounds in wall time, and attention as a fraction of the float32 multiply-add peak, which is measured in every round. The
// multiply-adds counted are those of the visible pairs; products with hidden keys are the implementation's own loss.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/backend.h"
#include "tests/bench/machine_peaks.h"
#include "tests/kernels/attention_batch.h"

namespace sysone {
namespace {

constexpr int kRounds = 7;

struct Case {
  const char* name;
  AttentionBatch stored, batch;  // what is in the store before, and what is measured
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [name, rows] :
       {std::pair{"60 rows", 60}, {"300 rows", 300}, {"1024 rows", 1024}, {"2048 rows", 2048}}) {
    cases.push_back({name, {}, {}});
    cases.back().batch.AddRun({}, rows);
  }
  for (const auto& [name, branches, rows] :
       {std::tuple{"8 branches of 20", 8, 20}, {"255 branches of 8", 255, 8}}) {
    cases.push_back({name, {}, {}});
    const auto prefix = cases.back().stored.AddRun({}, 300);
    cases.back().batch.next_store_row = 300;
    for (int i = 0; i < branches; ++i) cases.back().batch.AddRun(prefix, rows);
  }
  return cases;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

template <class Work>
double Milliseconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Bench {
  Backend& backend;
  int threads;

  void Measure(const AttentionShape& shape, bool norms, const Case& c) const {
    const int32_t half = shape.head_dim / 2;
    const std::vector<float> angles(static_cast<size_t>(2400 * half), 0.7f);
    auto rope = backend.LoadRope(shape.head_dim, angles, angles);
    auto norm = backend.LoadVector(std::vector<float>(static_cast<size_t>(shape.head_dim), 1.0f));
    auto store = backend.NewKvStore(c.batch.store_rows(), shape);
    Data data(1);
    if (c.stored.rows() > 0)
      backend.StoreKv(
          *MakeTensor(backend, data.Normal(c.stored.rows() * shape.qkv_cols()), shape.qkv_cols()),
          shape, c.stored.Plan(), *store);
    const PassPlan plan = c.batch.Plan();
    auto qkv = MakeTensor(backend, data.Normal(plan.rows() * shape.qkv_cols()), shape.qkv_cols());
    auto out = backend.NewOperand(plan.rows(), shape.q_cols());
    double work = 0;
    for (const int32_t position : plan.positions) work += 4.0 * shape.q_cols() * (position + 1);

    std::vector<double> rotate, keep, attend, fraction;
    for (int round = -1; round < kRounds; ++round) {  // the first warms up
      const double before = FloatPeak(threads).operations_per_ns;
      const Vector* const weight = norms ? norm.get() : nullptr;
      const double rotate_ms =
          Milliseconds([&] { backend.NormRope(*qkv, shape, *rope, weight, weight, 1e-6f, plan); });
      const double keep_ms = Milliseconds([&] { backend.StoreKv(*qkv, shape, plan, *store); });
      const int repeats = std::max(1, static_cast<int>(4e8 / work));
      const double attend_ms = Milliseconds([&] {
                                 for (int i = 0; i < repeats; ++i)
                                   backend.Attend(*qkv, shape, plan, *store, *out);
                               }) /
                               repeats;
      const double peak = (before + FloatPeak(threads).operations_per_ns) / 2;
      if (round < 0) continue;
      rotate.push_back(rotate_ms);
      keep.push_back(keep_ms);
      attend.push_back(attend_ms);
      fraction.push_back(work / attend_ms / 1e6 / peak);
    }
    std::printf(
        "%2d on %d heads of %3d, %-17s rotate %7.3f ms, store %7.3f ms, attend %8.3f ms = %3.0f %% "
        "of the peak\n",
        shape.heads, shape.kv_heads, shape.head_dim, c.name, Median(rotate), Median(keep),
        Median(attend), 100 * Median(fraction));
  }
};

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  sysone::BackendOptions options;
  options.dtype = "float32";
  if (argc > 1) options.name = argv[1];
  options.threads = argc > 2 ? std::max(1, std::atoi(argv[2]))
                             : static_cast<int>(std::thread::hardware_concurrency());
  if (argc > 3) options.isa = argv[3];
  auto backend = sysone::MakeBackend(options);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.status().message().c_str());
    return 1;
  }
  std::printf("%s; peak %.1f GFLOP/s\n", (*backend)->Describe().c_str(),
              sysone::FloatPeak(options.threads).operations_per_ns);
  const sysone::Bench bench{**backend, options.threads};
  for (const auto& [shape, norms] : {std::pair{sysone::AttentionShape{16, 8, 128, 0.088f}, true},
                                     {{9, 3, 64, 0.125f}, false},
                                     {{12, 2, 128, 0.088f}, false}})
    for (const sysone::Case& c : sysone::Cases()) bench.Measure(shape, norms, c);
  return 0;
}
