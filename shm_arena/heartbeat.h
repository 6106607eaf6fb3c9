// What every child of the router does besides its work: it beats its lease, and it ends when it is asked to (SIGTERM, SIGINT).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "shm_arena/arena.h"

namespace sysone {

// Blocks SIGTERM and SIGINT for this thread and all that it starts, and ignores SIGPIPE. First thing in main.
void BlockStopSignals();

// Lives from registration to the end of the process; has a thread of its own, so that a long pass delays no beat.
class Heartbeat {
 public:
  // `arena` is registered and outlives this. `on_stop` runs once, on that thread, when the process is asked to end: for
  // waking whoever waits. stop() is true from then on.
  explicit Heartbeat(Arena& arena, std::function<void()> on_stop = {});
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void Loop();

  Arena& arena_;
  const std::function<void()> on_stop_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

}  // namespace sysone
