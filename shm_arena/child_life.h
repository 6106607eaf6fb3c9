// What every child of the router does besides its work: it beats its lease, ends when it is asked to (SIGTERM, SIGINT), and
// ends by itself when the router is gone for good.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "shm_arena/arena.h"

namespace sysone {

// Blocks SIGTERM and SIGINT for this thread and all that it starts, and ignores SIGPIPE. First thing in main.
void BlockStopSignals();

// Lives from registration to the end of the process; has a thread of its own, so a long pass delays no beat.
class ChildLife {
 public:
  // `on_stop` runs once, on that thread, when the process is to end: for waking whoever waits.
  explicit ChildLife(Arena& arena, std::function<void()> on_stop = {});
  ~ChildLife();
  ChildLife(const ChildLife&) = delete;
  ChildLife& operator=(const ChildLife&) = delete;

  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void Loop();

  Arena& arena_;
  std::function<void()> on_stop_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

}  // namespace sysone
