// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/roll_call.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"

namespace sysone {

RollCall::RollCall(const std::string& folder, const std::string& name, int32_t rank, int32_t size,
                   int64_t patience_us)
    : prefix_(folder + "/" + name), rank_(rank), size_(size) {
  own_file_ = open(FileOf(rank).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (own_file_ < 0 || flock(own_file_, LOCK_EX | LOCK_NB) != 0)
    SYSONE_WARNING("%s cannot be locked; others may call this rank missing", FileOf(rank).c_str());
  thread_ = std::thread([this, until_us = MonotonicUs() + patience_us] { Watch(until_us); });
}

RollCall::~RollCall() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  thread_.join();
  if (own_file_ < 0) return;
  unlink(FileOf(rank_).c_str());
  close(own_file_);
}

std::string RollCall::FileOf(int32_t rank) const {
  return prefix_ + ".rank-" + std::to_string(rank);
}

std::string RollCall::Missing() const {
  std::string missing;
  for (int32_t r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const int file = open(FileOf(r).c_str(), O_RDWR | O_CLOEXEC);
    // Shared, so that two who look do not take each other for the rank.
    const bool there = file >= 0 && flock(file, LOCK_SH | LOCK_NB) != 0;
    if (file >= 0) close(file);
    if (!there) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  return missing;
}

void RollCall::Watch(int64_t until_us) {
  std::unique_lock lock(mutex_);
  const std::chrono::microseconds left(until_us - MonotonicUs());
  if (over_changed_.wait_for(lock, left, [this] { return over_; })) return;
  const std::string missing = Missing();
  SYSONE_ERROR("the group's %d ranks have not come together: %s", size_,
               missing.empty() ? "all are there, but MPI does not connect them"
                               : ("missing is rank " + missing).c_str());
  _exit(kExitFailure);
}

}  // namespace sysone
