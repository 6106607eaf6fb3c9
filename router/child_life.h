// When a child that died is started again, and when it is not: pure bookkeeping over times that the caller passes in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sysone {

struct RestartPolicy {
  int64_t first_delay_us = 100'000;
  int64_t longest_delay_us = 10'000'000;  // the delay doubles with each death up to here
  int64_t forgive_us = 5'000'000;         // so long ready, and one death less counts
  int start_attempts = 3;  // deaths of a child that was never ready before it is given up
};

// One child over all its incarnations. Times are MonotonicUs. Plain bytes: a router leaves it to the next one.
class ChildLife {
 public:
  enum class State : uint8_t {
    kWaiting,  // to be started at restart_at_us()
    kRunning,  // started, not ready yet
    kReady,
    kGivenUp,
  };

  explicit ChildLife(const RestartPolicy& policy = {}) : policy_(policy) {}

  void Started(int64_t now_us);
  // Repeated calls of one incarnation count once.
  void BecameReady(int64_t now_us);
  // `hopeless`: it said that another try fails the same way (kExitUsage, kExitSetup). Only a child that was never ready is
  // given up; one that once worked is tried for ever.
  void Died(int64_t now_us, bool hopeless);

  State state() const { return state_; }
  int64_t restart_at_us() const { return restart_at_us_; }
  int64_t started_us() const { return started_us_; }
  bool ever_ready() const { return ever_ready_; }
  int restarts() const { return starts_ > 0 ? starts_ - 1 : 0; }

 private:
  RestartPolicy policy_;
  State state_ = State::kWaiting;
  bool ever_ready_ = false;
  int starts_ = 0;
  int64_t deaths_ = 0;  // those that count
  int64_t started_us_ = 0;
  int64_t ready_since_us_ = 0;
  int64_t restart_at_us_ = 0;  // 0: at once
};

struct HeartbeatLimits {
  int64_t late_us = 5'000'000;    // is mentioned in the log
  int64_t stuck_us = 60'000'000;  // the child is killed
};
// What a child's last beat says about it; the limits above are the borders.
enum class Heartbeat : uint8_t { kFine, kLate, kStuck };

// `last_us`: the later of the child's start and its last beat.
Heartbeat JudgeHeartbeat(int64_t now_us, int64_t last_us, const HeartbeatLimits& limits);

}  // namespace sysone
