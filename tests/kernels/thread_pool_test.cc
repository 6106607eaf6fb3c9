// The pool runs every item once, makes results visible, survives many short loops, and is quiet when idle.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <vector>

namespace sysone {
namespace {

using Clock = std::chrono::steady_clock;

TEST(ThreadPool, RunsEveryItemOnceForAnyCount) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 100, 1000}) {
      std::vector<int> calls(
          static_cast<size_t>(count));  // plain ints: the end of the loop must order them
      pool.ParallelFor(count, [&](int64_t item, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++calls[static_cast<size_t>(item)];
      });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(count), 1)) << threads << " " << count;
    }
  }
}

TEST(ThreadPool, NoTwoItemsRunUnderOneThreadNumberAtOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  std::atomic<int> collisions = 0;
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(40, [&](int64_t, int thread) {
      if (busy[static_cast<size_t>(thread)].fetch_add(1) != 0) ++collisions;
      busy[static_cast<size_t>(thread)].fetch_sub(1);
    });
  }
  EXPECT_EQ(collisions, 0);
}

TEST(ThreadPool, ManyShortLoopsInARowKeepTheirDataApart) {
  ThreadPool pool(3);
  std::vector<int64_t> values(16);
  for (int64_t round = 0; round < 20000; ++round) {
    // Each loop reads what the one before wrote: a late worker of an old loop would spoil it.
    pool.ParallelFor(16, [&, round](int64_t item, int) {
      auto& value = values[static_cast<size_t>(item)];
      if (value == round) ++value;
    });
  }
  EXPECT_EQ(values, std::vector<int64_t>(16, 20000));
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  // Until another thread than the owner's has taken an item; the owner alone could run all of them in a short loop.
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  std::atomic<bool> worker_seen = false;
  pool.ParallelFor(2, [&](int64_t, int thread) {
    if (thread != 0) worker_seen = true;
    while (!worker_seen && Clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_TRUE(worker_seen);
}

double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST(ThreadPool, AnIdlePoolTakesNoTimeAndWakesAgain) {
  ThreadPool pool(3);
  pool.ParallelFor(100, [](int64_t, int) {});
  // A worker parks soon after the last loop, so a stretch of 50 ms must come in which the process uses next to no CPU time. The
  // sleep is the thing measured, not a wait for something.
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  double used = 1;
  while (used > 0.005 && Clock::now() < deadline) {
    const double before = CpuSeconds();
    std::this_thread::sleep_until(Clock::now() + std::chrono::milliseconds(50));
    used = CpuSeconds() - before;
  }
  EXPECT_LE(used, 0.005);
  std::atomic<int> calls = 0;
  pool.ParallelFor(100, [&](int64_t, int) { ++calls; });
  EXPECT_EQ(calls, 100);
}

}  // namespace
}  // namespace sysone
