// SPDX-License-Identifier: Apache-2.0
#include "router/child_life.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {

void ChildLife::Started(int64_t now_us) {
  SYSONE_CHECK(state_ == State::kWaiting, "a child is started only while it waits for that");
  state_ = State::kRunning;
  ++starts_;
  started_us_ = now_us;
}

void ChildLife::BecameReady(int64_t now_us) {
  if (state_ != State::kRunning) return;
  state_ = State::kReady;
  ever_ready_ = true;
  ready_since_us_ = now_us;
}

void ChildLife::Died(int64_t now_us, bool hopeless) {
  SYSONE_CHECK(state_ == State::kRunning || state_ == State::kReady,
               "only a running child can die");
  const int64_t forgiven =
      state_ == State::kReady ? (now_us - ready_since_us_) / policy_.forgive_us : 0;
  deaths_ = std::max<int64_t>(deaths_ - forgiven, 0) + 1;
  if (!ever_ready_ && (hopeless || deaths_ >= policy_.start_attempts)) {
    state_ = State::kGivenUp;
    return;
  }
  // 100 ms · 2^20 is past every cap, so the shift cannot overflow.
  const int64_t doublings = std::min<int64_t>(deaths_ - 1, 20);
  state_ = State::kWaiting;
  restart_at_us_ = now_us + std::min(policy_.first_delay_us << doublings, policy_.longest_delay_us);
}

Heartbeat JudgeHeartbeat(int64_t now_us, int64_t last_us, const HeartbeatLimits& limits) {
  const int64_t age_us = now_us - last_us;
  if (age_us >= limits.stuck_us) return Heartbeat::kStuck;
  return age_us >= limits.late_us ? Heartbeat::kLate : Heartbeat::kFine;
}

}  // namespace sysone
