// SPDX-License-Identifier: Apache-2.0
#include "router/drain_plan.h"

namespace sysone {

void DrainPlan::Request(int64_t now_us) {
  if (requests_++ == 0) deadline_us_ = now_us + timeout_us_;
}

DrainPlan::Order DrainPlan::Next(int64_t now_us, int api_servers_alive, int workers_alive) {
  if (!active()) return Order::kNone;
  if (api_servers_alive == 0 && workers_alive == 0) return Order::kFinished;
  if (killed_) return Order::kNone;
  if (forced() || now_us >= deadline_us_) {
    killed_ = true;
    return Order::kKillAll;
  }
  if (api_servers_alive > 0) {
    if (api_servers_told_) return Order::kNone;
    api_servers_told_ = true;
    return Order::kEndApiServers;
  }
  if (workers_told_) return Order::kNone;
  workers_told_ = true;
  return Order::kEndWorkers;
}

}  // namespace sysone
