// What a parallel loop costs by itself. Not part of the tests.
//
//   cmake --build build/release --target thread_pool_bench
//   build/release/bin/thread_pool_bench [threads, default all]
//
// Loops of as many items as threads that do next to nothing, one after the other (a pass is a few hundred such loops), and
// loops of 20 µs an item, of which everything over 20 µs is loss. Then the CPU time of an idle second.
// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cpu/cpu_limits.h"
#include "kernels/cpu/thread_pool.h"

namespace sysone {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void Spin(double us) {
  const auto start = Clock::now();
  while (Microseconds(start) < us) {
  }
}

// Median and 99th percentile over batches of `loops` loops, in µs a loop.
template <class Work>
void Measure(ThreadPool& pool, const char* name, int loops, const Work& work) {
  std::vector<double> times;
  for (int batch = 0; batch < 201; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < loops; ++i) pool.ParallelFor(pool.threads(), work);
    times.push_back(Microseconds(start) / loops);
  }
  std::ranges::sort(times);
  std::printf("%-24s %7.3f us a loop, p99 %7.3f\n", name, times[100], times[199]);
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  using namespace sysone;
  ThreadPool pool(argc > 1 ? std::max(1, std::atoi(argv[1])) : AllowedThreads());
  std::printf("%d threads\n", pool.threads());
  std::vector<int64_t> counts(static_cast<size_t>(pool.threads()) * 16);
  Measure(pool, "trivial items", 1000,
          [&](int64_t item, int) { ++counts[static_cast<size_t>(item) * 16]; });
  Measure(pool, "items of 20 us", 5, [](int64_t, int) { Spin(20); });
  // Past the time for which workers spin.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::printf("%-24s %7.3f us of CPU time\n", "an idle second", (CpuSeconds() - before) * 1e6);
  return 0;
}
