// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/rate_meter.h"

#include <cmath>

namespace sysone {

void RateMeter::Record(uint64_t tokens, uint64_t busy_us, int64_t now_us) {
  if (tokens == 0 || busy_us == 0) return;
  if (Outdated(now_us)) tokens_ = passes_ = busy_s_ = 0;
  last_us_ = now_us;
  const double pass_s = static_cast<double>(busy_us) * 1e-6;
  const double kept = std::exp(-pass_s / kMemoryS);
  // The pass fades while it lasts: the integral of exp(-t / kMemoryS) over its time, so that no pass outweighs the memory.
  const double weight_s = kMemoryS * (1 - kept);
  tokens_ = tokens_ * kept + static_cast<double>(tokens) / pass_s * weight_s;
  passes_ = passes_ * kept + weight_s / pass_s;
  busy_s_ = busy_s_ * kept + weight_s;
}

GroupRate RateMeter::Rate(int64_t now_us) const {
  if (busy_s_ < kKnownAfterS || Outdated(now_us)) return {};
  return {static_cast<float>(tokens_ / busy_s_), static_cast<float>(tokens_ / passes_)};
}

}  // namespace sysone
