// What a child does when its router dies without a word (kill -9): it works on, because a new router takes over (router/keeper.h).
// Only if none does within the lease, it drains and ends, and the last one to end removes the names that are the keeper's else.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "shm_arena/arena.h"

namespace sysone {

// How long children wait for a new router, and then at most for their own end.
inline constexpr int64_t kRouterLeaseUs = 10'000'000;

// API servers and workers: one, made right behind the arena (so that it is destroyed right before it) once the arena is
// registered. Its thread looks for the router twice a second; when there is none for the time of the lease, it sends SIGTERM to
// this process, which drains as on any SIGTERM, and ends the process when that takes longer than the lease.
class RouterWatch {
 public:
  struct Timing {
    int64_t look_every_us = 500'000;
    int64_t lease_us = kRouterLeaseUs;
  };

  // `arena` outlives this object. `run_dir` is --run-dir.
  RouterWatch(Arena& arena, std::string instance, std::string run_dir)
      : RouterWatch(arena, instance, run_dir, Timing()) {}
  RouterWatch(Arena& arena, std::string instance, std::string run_dir, Timing timing);
  // Without a router, marks this process as exited, and removes the segment's name and `run_dir` if no other process is left.
  ~RouterWatch();
  RouterWatch(const RouterWatch&) = delete;
  RouterWatch& operator=(const RouterWatch&) = delete;

 private:
  void Loop();
  bool RouterLives() const;
  // False when told to stop meanwhile.
  bool Sleep(int64_t until_us);
  void CleanUpIfLast();

  Arena& arena_;
  const std::string instance_;
  const std::string run_dir_;
  const Timing timing_;
  std::mutex mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

// Removes the folder that the router made for an instance, and /tmp/sysone-<uid> above it when it is empty.
void RemoveRunDir(const std::string& run_dir);

}  // namespace sysone
