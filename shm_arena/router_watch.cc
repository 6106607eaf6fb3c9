// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/router_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"

namespace sysone {

RouterWatch::RouterWatch(Arena& arena, std::string instance, std::string run_dir, Timing timing)
    : arena_(arena), instance_(std::move(instance)), run_dir_(std::move(run_dir)), timing_(timing) {
  thread_ = std::thread([this] { Loop(); });
}

RouterWatch::~RouterWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
  if (!RouterLives()) CleanUpIfLast();
}

void RouterWatch::Loop() {
  int64_t seen_us = MonotonicUs();
  do {
    if (!Sleep(MonotonicUs() + timing_.look_every_us)) return;
    if (RouterLives()) seen_us = MonotonicUs();
  } while (MonotonicUs() - seen_us < timing_.lease_us);
  SYSONE_WARNING("the router is gone and none takes over; draining and ending");
  kill(getpid(), SIGTERM);
  if (!Sleep(MonotonicUs() + timing_.lease_us)) return;
  SYSONE_ERROR("not drained within the router's lease; ending now");
  CleanUpIfLast();
  _exit(kExitFailure);
}

bool RouterWatch::RouterLives() const {
  return IdentityAlive(ProcessIdentity{arena_.header()->creator.load(std::memory_order_relaxed)});
}

bool RouterWatch::Sleep(int64_t until_us) {
  std::unique_lock lock(mutex_);
  const std::chrono::microseconds left(until_us - MonotonicUs());
  return !stop_changed_.wait_for(lock, left, [this] { return stop_; });
}

void RouterWatch::CleanUpIfLast() {
  arena_.lease().SetPhase(ProcessPhase::kExited);
  // Of two that end together, the second one here sees both as exited: read-modify-writes of one word have one order, and
  // the second acquires what the first released, its phase. (No fence: the thread sanitizer does not know them.)
  arena_.header()->creator.fetch_add(0, std::memory_order_acq_rel);
  const ProcessTable processes = arena_.processes();
  for (uint32_t i = 0; i < processes.lines_used(); ++i)
    if (processes.Alive(static_cast<ProcessId>(i))) return;
  const std::string name = "/" + SegmentName(instance_);
  const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (file < 0) return;
  // A router that holds the lock has made or adopted a segment of this name: it is not ours to remove any more.
  if (flock(file, LOCK_EX | LOCK_NB) == 0) {
    shm_unlink(name.c_str());
    RemoveRunDir(run_dir_);
  }
  close(file);
}

void RemoveRunDir(const std::string& run_dir) {
  if (run_dir.empty()) return;
  std::error_code ignored;
  const std::filesystem::path path(run_dir);
  std::filesystem::remove_all(path, ignored);
  const std::string parent = path.parent_path().filename().string();
  // Only empty folders go: other instances of this user keep theirs there.
  if (parent.starts_with("sysone-")) std::filesystem::remove(path.parent_path(), ignored);
}

}  // namespace sysone
