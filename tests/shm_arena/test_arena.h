// A small arena in plain memory, and processes that exist in its table alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "base/clock.h"
#include "shm_arena/arena.h"

namespace sysone {

inline ArenaConfig SmallConfig(uint32_t small_slots = 4, uint32_t large_slots = 2) {
  ArenaConfig config;
  config.class_count = 2;
  config.classes[0] = {small_slots, 4096};
  config.classes[1] = {large_slots, 16384};
  return config;
}

// Beyond pid_max (2^22), so that nobody ever has it: a process that is dead from the start.
inline ProcessIdentity DeadIdentity() { return {uint64_t{(1u << 22) + 1} << 40 | 1}; }

inline ProcessId AddProcess(Arena& arena, ProcessRole role, uint32_t index, bool alive = true) {
  const ProcessIdentity identity = alive ? CurrentProcessIdentity() : DeadIdentity();
  return *arena.processes().Register(identity, role, index, MonotonicUs());
}

// Waits as the owner of a slot does, asleep until it gets a notice: one thread a process.
inline SlotOutcome WaitForEnd(Arena& arena, ProcessId owner, SlotHandle slot, int64_t until_us) {
  NoticeBoard notices = arena.notices();
  std::vector<uint32_t> noticed;
  for (;;) {
    const SlotOutcome now = arena.slots().Look(slot);
    if (now.state != SlotState::kReady && now.state != SlotState::kRunning) return now;
    if (MonotonicUs() >= until_us) return now;
    notices.WaitOnFutex(NoticeReceiver::Of(owner), until_us);
    notices.Take(NoticeReceiver::Of(owner), noticed);
  }
}

// A deadline for conditions that hold almost at once unless something is broken.
inline int64_t Soon() { return MonotonicUs() + 20'000'000; }

inline constexpr GroupId kGroup0{0};
inline constexpr GroupId kGroup1{1};

}  // namespace sysone
