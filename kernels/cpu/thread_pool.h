// The threads that share the work of one backend. A forward pass is a few hundred short parallel
// loops, so a loop must start within a fraction of a microsecond: workers spin between loops and
// park on a futex once nothing has come for a while.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace sysone {

// One thread, the owner, calls ParallelFor; it takes part in the work, so a pool of n threads
// starts n - 1.
class ThreadPool {
 public:
  // Workers are pinned, one a CPU, only if the pool fills the affinity mask: a smaller pool shares
  // the CPUs with others, and two pools pinned to the same few CPUs would stand in each other's
  // way.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(item, thread) once for every item in [0, count), thread in [0, threads()), and
  // returns when all calls have returned. Which thread takes which item is not fixed, so an item's
  // result must not depend on it. A worker that is not awake in time is not waited for.
  template <class Work>
  void ParallelFor(int64_t count, const Work& work) {
    Run(count, &work, [](const void* context, int64_t item, int thread) {
      (*static_cast<const Work*>(context))(item, thread);
    });
  }

 private:
  using Call = void (*)(const void* context, int64_t item, int thread);

  void Run(int64_t count, const void* context, Call call);
  void WorkerLoop(int thread);
  void TakeItems(int thread);

  // The loop being run. Written by the owner while the phase is even and no worker is inside; see
  // Run.
  int64_t count_ = 0;
  const void* context_ = nullptr;
  Call call_ = nullptr;
  bool stop_ = false;

  // Odd: a loop is open to workers. Even: closed. Only the owner changes it, always upwards.
  alignas(64) std::atomic<uint32_t> phase_{0};
  alignas(64) std::atomic<int64_t> next_item_{0};
  alignas(64) std::atomic<int> inside_{0};  // workers that may be reading the loop
  std::vector<std::thread> workers_;
};

}  // namespace sysone
