// The futex system call; see futex.h.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace sysone {

void FutexWait(const void* word, uint32_t expected, int64_t until_us) {
  timespec until;
  until.tv_sec = static_cast<time_t>(until_us / 1'000'000);
  until.tv_nsec = static_cast<long>(until_us % 1'000'000) * 1'000;
  if (until_us < 0) until = {0, 0};
  // WAIT_BITSET, because it takes an absolute CLOCK_MONOTONIC time. Not PRIVATE: the word is shared
  // between processes.
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(const void* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sysone
