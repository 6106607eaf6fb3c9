// Sleeping on a 32-bit word that several processes map. A futex needs no lock that a dying process
// could hold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sysone {

// Sleeps while *word == expected, until woken or `until_us` (MonotonicUs). Returns early at any
// time: check again.
void FutexWait(const void* word, uint32_t expected, int64_t until_us);
// Wakes every sleeper of all processes.
void FutexWakeAll(const void* word);

}  // namespace sysone
