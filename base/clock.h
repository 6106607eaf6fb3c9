// The one monotonic clock. All processes of a machine read the same CLOCK_MONOTONIC, so deadlines may cross the arena.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <time.h>

#include <cstdint>

namespace sysone {

// Microseconds since boot; never jumps.
inline int64_t MonotonicUs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
}

}  // namespace sysone
