// The hand-over between the owner and the workers, in cases:
//   O1 owner writes the loop, then phase_ even → odd (release; pairs with the acquire in W1).
//   W1 worker sees a new odd phase, enters: inside_ + 1, and reads phase_ again.
//      W2 unchanged: the owner cannot have passed O3, the loop stays readable until the worker
//      leaves. W3 changed: the loop is over or another one is open; the worker leaves without
//      reading anything.
//   O2 owner takes items itself until none is left, then phase_ odd → even.
//   O3 owner waits until inside_ is 0 (acquire; pairs with the release of the leaving workers:
//   their results are visible).
// W1 writes inside_ and then reads phase_, O2/O3 write phase_ and then read inside_: both sides are
// sequentially consistent, so at least one of them sees the other.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>

#include "base/check.h"
#include "kernels/cpu/cpu_limits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sysone {
namespace {

// Longer than the serial parts between two loops of a pass, shorter than anything that a person
// would call busy. About twice the cost of waking a parked thread (30–60 µs).
constexpr std::chrono::microseconds kSpinTime{100};

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// Spins until ready() or the time is up; says which. The clock is read rarely, because reading it
// costs as much as a pause.
template <class Ready>
bool SpinUntil(const Ready& ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  SYSONE_CHECK(threads >= 1, "a pool of %d threads", threads);
  const std::vector<int> cpus = AllowedCpus();
  for (int t = 1; t < threads; ++t) {
    workers_.emplace_back([this, t] { WorkerLoop(t); });
    if (std::ssize(cpus) != threads) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpus[static_cast<size_t>(t)], &set);
    // A refusal costs speed only.
    pthread_setaffinity_np(workers_.back().native_handle(), sizeof(set), &set);
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  phase_.fetch_add(1, std::memory_order_release);
  phase_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t count, const void* context, Call call) {
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  count_ = count;
  context_ = context;
  call_ = call;
  next_item_.store(0, std::memory_order_relaxed);
  phase_.fetch_add(1, std::memory_order_seq_cst);  // O1
  phase_.notify_all();
  TakeItems(0);
  phase_.fetch_add(1, std::memory_order_seq_cst);                // O2
  while (inside_.load(std::memory_order_seq_cst) != 0) Pause();  // O3
}

void ThreadPool::TakeItems(int thread) {
  for (int64_t i; (i = next_item_.fetch_add(1, std::memory_order_relaxed)) < count_;)
    call_(context_, i, thread);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    uint32_t phase = seen;
    const auto open = [&] {
      phase = phase_.load(std::memory_order_acquire);
      return phase != seen && phase % 2 == 1;
    };
    while (!SpinUntil(open)) {
      if (phase_.wait(phase, std::memory_order_acquire); open()) break;
    }
    seen = phase;
    inside_.fetch_add(1, std::memory_order_seq_cst);  // W1
    const bool same = phase_.load(std::memory_order_seq_cst) == phase;
    if (same && stop_) return;
    if (same) TakeItems(thread);                      // W2
    inside_.fetch_sub(1, std::memory_order_release);  // W2, W3
  }
}

}  // namespace sysone
