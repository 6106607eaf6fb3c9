// The 64-bit word that owns a slot: one compare-and-swap moves state, owner and group together, so
// a process that dies between two instructions leaves a slot that the router can still account for.
//
//   63            32 31     24 23     16 15              0
//  |   generation   |  owner  |  group  |     state      |
//
//   FREE ─claim▶ CLAIMED ─publish▶ READY(g) ─take▶ RUNNING(g) ─complete▶ DONE(g)   ─release▶ FREE
//                   ▲                 │               │ └──────fail────▶ FAILED(g) ─release▶ FREE
//                   │                 │ group died    │ group died
//                   └──take back── RETURNED ◀─────────┘
//   RUNNING ─owner gave up or died▶ ABANDONED(g) ─worker done, or group died▶ FREE
//   CLAIMED, READY, RETURNED, DONE, FAILED ─owner cancels, or owner died▶ FREE
// The generation increments on every way into FREE. ABANDONED has no owner; RETURNED has no group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "shm_arena/ids.h"

namespace sysone {

// The states of the drawing above.
enum class SlotState : uint32_t {
  kFree = 0,
  kClaimed = 1,
  kReady = 2,
  kRunning = 3,
  kDone = 4,
  kFailed = 5,
  kReturned = 6,
  kAbandoned = 7,
};

// Short name for logs: "running".
const char* SlotStateName(SlotState state);

struct SlotWord {
  uint32_t generation = 0;
  ProcessId owner = ProcessId::kNone;
  GroupId group = GroupId::kNone;
  SlotState state = SlotState::kFree;

  constexpr uint64_t Pack() const {
    return static_cast<uint64_t>(generation) << 32 | static_cast<uint64_t>(Index(owner)) << 24 |
           static_cast<uint64_t>(Index(group)) << 16 | static_cast<uint64_t>(state);
  }
  static constexpr SlotWord Unpack(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<ProcessId>(word >> 24 & 0xff),
            static_cast<GroupId>(word >> 16 & 0xff), static_cast<SlotState>(word & 0xffff)};
  }
  friend bool operator==(const SlotWord&, const SlotWord&) = default;
};

static_assert(Index(ProcessId::kNone) < 256 && kMaxProcesses <= 255, "an owner fits 8 bits");
static_assert(Index(GroupId::kNone) < 256 && kMaxGroups <= 255, "a group fits 8 bits");

}  // namespace sysone
