// Strong index types of the arena: which process, which worker group, which slot. Separate so that
// load board, slots and notices can name each other without including each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace sysone {

inline constexpr uint32_t kMaxProcesses =
    128;  // lines of the process table; ids fit the 8 owner bits of a slot word
inline constexpr uint32_t kMaxGroups =
    64;  // worker groups; ids fit the 8 group bits of a slot word
inline constexpr uint32_t kMaxSlotClasses = 4;

// A line of the process table, 0 … kMaxProcesses - 1.
enum class ProcessId : uint32_t { kNone = 255 };

// A worker group (one model replica, one or more ranks), 0 … kMaxGroups - 1.
enum class GroupId : uint32_t { kNone = 255 };

// The id as a place in a table.
constexpr uint32_t Index(ProcessId id) { return static_cast<uint32_t>(id); }
constexpr uint32_t Index(GroupId id) { return static_cast<uint32_t>(id); }

// Names one use of one slot. A handle whose generation is no longer the slot's is stale, and every
// function of SlotPool refuses it.
struct SlotHandle {
  uint32_t index = UINT32_MAX;
  uint32_t generation = 0;

  friend bool operator==(const SlotHandle&, const SlotHandle&) = default;
};

}  // namespace sysone
