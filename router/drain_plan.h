// The order in which a stopping instance ends its children: API servers first, because requests in flight still need the
// workers; then the workers; and everything at once when time runs out or a second signal comes. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sysone {

class DrainPlan {
 public:
  enum class Order : uint8_t {
    kNone,           // nothing to do now
    kEndApiServers,  // SIGTERM to every API server
    kEndWorkers,     // SIGTERM to every worker
    kKillAll,        // SIGKILL to all that still live
    kFinished,       // nobody is left
  };

  // `timeout_us` from the first request to kKillAll; 0 kills at once.
  explicit DrainPlan(int64_t timeout_us) : timeout_us_(timeout_us) {}

  // A signal that asks to stop; the second one ends the waiting.
  void Request(int64_t now_us);
  bool active() const { return requests_ > 0; }
  bool forced() const { return requests_ > 1; }
  int requests() const { return requests_; }

  // Each order is given once; to be called whenever a child ended or time passed.
  Order Next(int64_t now_us, int api_servers_alive, int workers_alive);

 private:
  const int64_t timeout_us_;
  int requests_ = 0;
  int64_t deadline_us_ = 0;
  bool api_servers_told_ = false;
  bool workers_told_ = false;
  bool killed_ = false;
};

}  // namespace sysone
