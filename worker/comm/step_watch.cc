// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/step_watch.h"

#include <chrono>

#include "base/clock.h"
#include "base/log.h"

namespace sysone {

StepWatch::StepWatch(Options options)
    : options_(std::move(options)), thread_([this] { Watch(); }) {}

StepWatch::~StepWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  over_changed_.notify_all();
  thread_.join();
}

void StepWatch::Begin(uint64_t number, const char* what, int64_t amount) {
  const int64_t now_us = MonotonicUs();
  const std::lock_guard lock(mutex_);
  work_ = {true, number, what, amount, now_us};
}

void StepWatch::End() {
  const std::lock_guard lock(mutex_);
  work_.in_work = false;
}

std::string StepWatch::Step() const {
  const std::lock_guard lock(mutex_);
  return Format("step %llu, %s (%lld)", static_cast<unsigned long long>(work_.number), work_.what,
                static_cast<long long>(work_.amount));
}

std::string StepWatch::Look(const Work& work) const {
  std::string fault = options_.fault();
  if (!fault.empty()) return fault;
  const int64_t age_us = MonotonicUs() - work.since_us;
  if (age_us < options_.stuck_after_us) return "";
  return Format("not finished after %.1f s, and no error is reported: a rank is stuck or gone",
                static_cast<double>(age_us) * 1e-6);
}

void StepWatch::Watch() {
  std::unique_lock lock(mutex_);
  const std::chrono::microseconds pause(options_.look_every_us);
  while (!over_changed_.wait_for(lock, pause, [this] { return over_; })) {
    if (!work_.in_work) continue;
    const Work work = work_;
    lock.unlock();
    const std::string cause = Look(work);
    lock.lock();
    // A step that was over before the look was is all right, whatever its age.
    const bool same =
        work_.in_work && work_.number == work.number && work_.since_us == work.since_us;
    if (cause.empty() || !same) continue;
    lock.unlock();
    return options_.end(cause);
  }
}

}  // namespace sysone
