// The byte layout of the arena. Offsets, never pointers; fixed-width fields; sizes come from the
// header, because the router chooses them at start and every process checks them when it attaches.
//
//   0 ┌──────────────────────────┐
//     │ ArenaHeader              │ magic, version, layout hash, creator, size classes, claim hints
//     ├──────────────────────────┤
//     │ ProcessTableRegion       │ a line a process                       (process_table.h)
//     ├──────────────────────────┤
//     │ LoadBoardRegion          │ outstanding work, state of the groups  (load_board.h)
//     ├──────────────────────────┤
//     │ MetricsRegion            │ counters and histograms                (counters.h)
//     ├──────────────────────────┤
//     │ AcceptRegion             │ whose turn it is to accept             (accept_turn.h)
//     ├──────────────────────────┤
//     │ PrefixRegion             │ what groups hold of earlier prompts    (prefix_board.h)
//     ├──────────────────────────┤
//     │ NoticeLine × receivers   │ who has notices, who sleeps            (notice_board.h)
//     ├──────────────────────────┤
//     │ SlotHeader × slots       │ one line a slot, class after class     (slot_word.h)
//     ├──────────────────────────┤
//     │ bits × receivers         │ a bit a slot: look there               (notice_board.h)
//     ├──────────────────────────┤ 4096-aligned
//     │ payload, class 0         │ slots × block bytes                    (job_layout.h)
//     │ payload, class 1 …       │
//     └──────────────────────────┘ ArenaRegions::total_bytes
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/status.h"
#include "shm_arena/counters.h"
#include "shm_arena/ids.h"
#include "shm_arena/load_board.h"
#include "shm_arena/notice_board.h"
#include "shm_arena/prefix_board.h"
#include "shm_arena/process_table.h"

namespace sysone {

inline constexpr uint64_t kArenaMagic =
    0x414e4552'4f535953;  // "SYSORENA" in memory order; written last
inline constexpr uint32_t kArenaVersion = 2;
inline constexpr size_t kPageBytes = 4096;

// ---- configuration ----

inline constexpr uint32_t kDefaultArenaMegabytes = 48;

struct SlotClassConfig {
  uint32_t slots = 0;
  uint64_t block_bytes =
      0;  // payload of one slot; a multiple of the page size, growing from class to class

  friend bool operator==(const SlotClassConfig&, const SlotClassConfig&) = default;
};

struct ArenaConfig {
  uint32_t class_count = 0;
  std::array<SlotClassConfig, kMaxSlotClasses> classes{};

  // About `megabytes` (MiB) of payload, a third for each of 16 KiB, 256 KiB and 4 MiB blocks. The
  // default, 48, stays below the 64 MB that containers have in /dev/shm. kInvalidArgument below 12.
  static Result<ArenaConfig> ForMegabytes(uint32_t megabytes);
  // As large as these bounds need, at least the default: each request may hold a slot, and all of
  // their tokens fit.
  static ArenaConfig ForQueue(uint32_t queued_requests, uint64_t queued_tokens);
  // kInvalidArgument with the reason when the classes break a rule.
  Status Validate() const;

  friend bool operator==(const ArenaConfig&, const ArenaConfig&) = default;
};

// ---- shared structs ----

struct SlotClass {
  uint32_t first_slot;  // index of the class's first slot
  uint32_t slots;
  uint64_t block_bytes;
  uint64_t payload_offset;  // of the first block, from the start of the arena
};
static_assert(sizeof(SlotClass) == 24 && std::is_trivially_copyable_v<SlotClass>);

// Claims of one class start their scan here; on lines of their own because every claim increments
// one.
struct alignas(128) ClaimHint {
  std::atomic<uint32_t> next;
  std::atomic<uint32_t> high_water;  // largest number in use that a scan saw
};

struct alignas(128) ArenaHeader {
  std::atomic<uint64_t>
      magic;  // release at the end of formatting; pairs with the acquire in ArenaAttach
  uint32_t version;
  uint32_t class_count;
  uint64_t layout_hash;  // of the sizes and offsets of every shared struct
  uint64_t total_bytes;
  std::atomic<uint64_t>
      creator;  // ProcessIdentity of the router; of its keeper while there is none
  // What all processes of the instance must be and serve (Arena::CheckIdentity); text that ends with a zero. Written before any
  // other process attaches.
  char program_version[32];
  char model_fingerprint[64];
  SlotClass classes[kMaxSlotClasses];
  ClaimHint hints[kMaxSlotClasses];
};

// The line of one slot. Only `word` decides who may touch the rest; the other fields are relaxed
// atomics because a sweep may read them while a slot changes hands, and then discards what it read.
struct alignas(64) SlotHeader {
  std::atomic<uint64_t> word;  // SlotWord
  std::atomic<uint64_t> publish_sequence;
  std::atomic<int64_t> publish_us;
  std::atomic<int64_t> deadline_us;
  std::atomic<int32_t> priority;
  std::atomic<uint32_t> used_bytes;
  std::atomic<int32_t> result_code;  // Code of a FAILED slot
};
static_assert(sizeof(SlotHeader) == 64 && offsetof(SlotHeader, word) == 0);

struct alignas(128) AcceptRegion {
  std::atomic<uint32_t> sequence;  // futex: moves at every change of a connection count
};

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::is_standard_layout_v<ArenaHeader> && std::is_standard_layout_v<SlotHeader> &&
              std::is_standard_layout_v<ProcessTableRegion> &&
              std::is_standard_layout_v<LoadBoardRegion> &&
              std::is_standard_layout_v<MetricsRegion> && std::is_standard_layout_v<AcceptRegion> &&
              std::is_standard_layout_v<PrefixRegion> && std::is_standard_layout_v<NoticeLine>);

// ---- where everything is ----

// The next multiple of `alignment`.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// The one table of offsets. Regions whose size is known at compile time stand first, so their
// offsets are constants.
struct ArenaRegions {
  static constexpr uint64_t kProcesses = AlignUp(sizeof(ArenaHeader), 128);
  static constexpr uint64_t kLoadBoard = kProcesses + AlignUp(sizeof(ProcessTableRegion), 128);
  static constexpr uint64_t kMetrics = kLoadBoard + AlignUp(sizeof(LoadBoardRegion), 128);
  static constexpr uint64_t kAccept = kMetrics + AlignUp(sizeof(MetricsRegion), 128);
  static constexpr uint64_t kPrefixes = kAccept + AlignUp(sizeof(AcceptRegion), 128);
  static constexpr uint64_t kNotices = kPrefixes + AlignUp(sizeof(PrefixRegion), 128);
  static constexpr uint64_t kSlots = kNotices + kNoticeReceivers * sizeof(NoticeLine);
  // Behind the slot headers.
  static constexpr uint64_t NoticeBitsOffset(uint32_t slots) {
    return AlignUp(kSlots + slots * sizeof(SlotHeader), 128);
  }

  std::array<SlotClass, kMaxSlotClasses> classes{};
  uint32_t slots = 0;
  uint64_t total_bytes = 0;

  static constexpr ArenaRegions Of(const ArenaConfig& config) {
    ArenaRegions regions;
    for (uint32_t c = 0; c < config.class_count; ++c) {
      regions.classes[c].first_slot = regions.slots;
      regions.classes[c].slots = config.classes[c].slots;
      regions.classes[c].block_bytes = config.classes[c].block_bytes;
      regions.slots += config.classes[c].slots;
    }
    uint64_t offset = NoticeBitsOffset(regions.slots) +
                      kNoticeReceivers * NoticeWords(regions.slots) * sizeof(uint64_t);
    offset = AlignUp(offset, kPageBytes);
    for (uint32_t c = 0; c < config.class_count; ++c) {
      regions.classes[c].payload_offset = offset;
      offset += config.classes[c].slots * config.classes[c].block_bytes;
    }
    regions.total_bytes = offset;
    return regions;
  }
};

// Changes whenever a shared struct changes its size or order, so that two builds never share a
// segment.
uint64_t ArenaLayoutHash();

// ---- formatting, on any mapped memory (zeroed, page-aligned, ArenaRegions::total_bytes long) ----

// Writes the header; the arena is usable when this returns. `config` must be valid.
void FormatArena(std::byte* base, const ArenaConfig& config, uint64_t creator_identity);
// kCorrupt when the header does not describe an arena of this build in `bytes` bytes.
Status CheckArena(const std::byte* base, uint64_t bytes);

}  // namespace sysone
