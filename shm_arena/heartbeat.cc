// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/heartbeat.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"

namespace sysone {
namespace {

// Four beats a second: far more often than any patience with a silent process.
constexpr timespec kBeat{0, 250'000'000};

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

Heartbeat::Heartbeat(Arena& arena, std::function<void()> on_stop)
    : arena_(arena), on_stop_(std::move(on_stop)), thread_([this] { Loop(); }) {}

Heartbeat::~Heartbeat() {
  end_.store(true, std::memory_order_relaxed);
  // Its own stop signal wakes the thread at once.
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void Heartbeat::Loop() {
  const sigset_t set = StopSignals();
  while (!end_.load(std::memory_order_relaxed)) {
    arena_.lease().Beat(MonotonicUs());
    if (sigtimedwait(&set, nullptr, &kBeat) < 0) continue;  // no signal in this beat
    if (end_.load(std::memory_order_relaxed) || stop_.exchange(true)) continue;
    if (on_stop_) on_stop_();
  }
}

}  // namespace sysone
