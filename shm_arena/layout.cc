// Configuration rules, formatting and checking of the arena's header.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/layout.h"

#include <algorithm>
#include <new>

#include "shm_arena/job_layout.h"
#include "shm_arena/slot_word.h"

namespace sysone {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

// FNV-1a over numbers: enough to tell two layouts apart.
constexpr uint64_t HashNumbers(std::initializer_list<uint64_t> numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  for (uint64_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= number >> (8 * byte) & 0xff;
      hash *= 0x100000001b3;
    }
  }
  return hash;
}

constexpr uint64_t kLayoutHash =
    HashNumbers({kArenaVersion, kMaxProcesses, kMaxGroups, kMaxSlotClasses,
                 // Regions.
                 ArenaRegions::kProcesses, ArenaRegions::kLoadBoard, ArenaRegions::kMetrics,
                 ArenaRegions::kAccept, ArenaRegions::kPrefixes, ArenaRegions::kNotices,
                 ArenaRegions::kSlots, offsetof(NoticeLine, sleep),
                 // Header.
                 sizeof(ArenaHeader), offsetof(ArenaHeader, creator),
                 offsetof(ArenaHeader, classes), offsetof(ArenaHeader, hints),
                 // Lines.
                 sizeof(ProcessEntry), offsetof(ProcessEntry, phase),
                 offsetof(ProcessEntry, heartbeat_us), offsetof(ProcessEntry, open_connections),
                 sizeof(LoadRow), sizeof(GroupLine), offsetof(GroupLine, rate_bits),
                 offsetof(GroupLine, total_jobs), offsetof(GroupLine, publish_sequence),
                 sizeof(SlotHeader), offsetof(SlotHeader, publish_sequence),
                 offsetof(SlotHeader, deadline_us), offsetof(SlotHeader, result_code),
                 // Counters: a new one in the middle changes the meaning of those behind it, and
                 // always the count.
                 kCounterCount, kHistogramCount, kBucketCount, kMetricShards, sizeof(MetricShard),
                 kPrefixStep, kPrefixMarks,
                 // Payload.
                 kJobMagic, sizeof(JobHeader), offsetof(JobHeader, sequences_offset),
                 offsetof(JobHeader, queue_us), sizeof(JobSequence), sizeof(SequenceResult)});

ArenaConfig ConfigOf(const ArenaHeader& header) {
  ArenaConfig config;
  config.class_count = std::min(header.class_count, kMaxSlotClasses);
  for (uint32_t c = 0; c < config.class_count; ++c) {
    config.classes[c] = {header.classes[c].slots, header.classes[c].block_bytes};
  }
  return config;
}

}  // namespace

uint64_t ArenaLayoutHash() { return kLayoutHash; }

Result<ArenaConfig> ArenaConfig::ForMegabytes(uint32_t megabytes) {
  // A third of 12 MiB is the one 4 MiB block without which a long prompt has no place.
  if (megabytes < 12) {
    return Error(Code::kInvalidArgument,
                 "the arena needs at least 12 MiB, not %u: raise --shm-arena-mb", megabytes);
  }
  const uint64_t third = megabytes * kMiB / 3;
  ArenaConfig config;
  config.class_count = 3;
  uint32_t c = 0;
  for (uint64_t block_bytes : {16 * kKiB, 256 * kKiB, 4 * kMiB}) {
    config.classes[c++] = {static_cast<uint32_t>(third / block_bytes), block_bytes};
  }
  return config;
}

ArenaConfig ArenaConfig::ForQueue(uint32_t queued_requests, uint64_t queued_tokens) {
  // The smallest class, a third of the arena, has a slot for every request; the other two thirds
  // hold 4-byte tokens, with as much again for labels, results and the unused ends of blocks.
  const uint64_t for_requests = 3 * uint64_t{queued_requests} * 16 * kKiB;
  const uint64_t for_tokens = queued_tokens * 2 * sizeof(int32_t) * 3 / 2;
  const uint64_t megabytes = (std::max(for_requests, for_tokens) + kMiB - 1) / kMiB;
  return *ForMegabytes(
      static_cast<uint32_t>(std::clamp<uint64_t>(megabytes, kDefaultArenaMegabytes, 1u << 20)));
}

Status ArenaConfig::Validate() const {
  if (class_count == 0 || class_count > kMaxSlotClasses) {
    return Error(Code::kInvalidArgument, "an arena has 1 to %u slot classes, not %u",
                 kMaxSlotClasses, class_count);
  }
  uint64_t slots = 0;
  for (uint32_t c = 0; c < class_count; ++c) {
    const SlotClassConfig& slot_class = classes[c];
    if (slot_class.slots == 0) {
      return Error(Code::kInvalidArgument, "slot class %u has no slots", c);
    }
    // 1 TiB a block and 2^24 slots: far above use, far below overflow of the 64-bit offsets.
    if (slot_class.block_bytes == 0 || slot_class.block_bytes % kPageBytes != 0 ||
        slot_class.block_bytes > (uint64_t{1} << 40)) {
      return Error(Code::kInvalidArgument,
                   "the block size of slot class %u, %llu, is no multiple of %zu up to 1 TiB", c,
                   static_cast<unsigned long long>(slot_class.block_bytes), kPageBytes);
    }
    if (c > 0 && slot_class.block_bytes <= classes[c - 1].block_bytes) {
      return Error(Code::kInvalidArgument,
                   "the block size of slot class %u is not above that of class %u", c, c - 1);
    }
    slots += slot_class.slots;
  }
  if (slots > (1u << 24)) {
    return Error(Code::kInvalidArgument, "%llu slots are more than 2^24",
                 static_cast<unsigned long long>(slots));
  }
  return {};
}

void FormatArena(std::byte* base, const ArenaConfig& config, uint64_t creator_identity) {
  SYSONE_CHECK(config.Validate().ok(), "%s", config.Validate().message().c_str());
  const ArenaRegions regions = ArenaRegions::Of(config);
  // Implicit-lifetime types in zeroed memory: value 0 is the start of every field that is not set
  // here.
  auto* header = reinterpret_cast<ArenaHeader*>(base);
  header->version = kArenaVersion;
  header->class_count = config.class_count;
  header->layout_hash = kLayoutHash;
  header->total_bytes = regions.total_bytes;
  header->creator.store(creator_identity, std::memory_order_relaxed);
  std::copy(regions.classes.begin(), regions.classes.end(), header->classes);

  auto* board = reinterpret_cast<LoadBoardRegion*>(base + ArenaRegions::kLoadBoard);
  for (GroupLine& group : board->groups) {
    group.worker_process.store(Index(ProcessId::kNone), std::memory_order_relaxed);
  }
  auto* slots = reinterpret_cast<SlotHeader*>(base + ArenaRegions::kSlots);
  for (uint32_t i = 0; i < regions.slots; ++i)
    slots[i].word.store(SlotWord{}.Pack(), std::memory_order_relaxed);
  // Release: whoever acquires the magic word (Segment::Attach, CheckArena) sees all of the above.
  header->magic.store(kArenaMagic, std::memory_order_release);
}

Status CheckArena(const std::byte* base, uint64_t bytes) {
  if (bytes < ArenaRegions::kSlots) {
    return Error(Code::kCorrupt, "%llu bytes are too few for an arena",
                 static_cast<unsigned long long>(bytes));
  }
  const auto* header = reinterpret_cast<const ArenaHeader*>(base);
  // Acquire: pairs with the release at the end of FormatArena.
  if (header->magic.load(std::memory_order_acquire) != kArenaMagic) {
    return Error(Code::kCorrupt, "no arena: the magic word is missing");
  }
  if (header->version != kArenaVersion || header->layout_hash != kLayoutHash) {
    return Error(Code::kCorrupt,
                 "the arena was made by another build of sysone (version %u, layout %016llx; this "
                 "build has %u, "
                 "%016llx): all programs of an instance must come from one build",
                 header->version, static_cast<unsigned long long>(header->layout_hash),
                 kArenaVersion, static_cast<unsigned long long>(kLayoutHash));
  }
  const ArenaConfig config = ConfigOf(*header);
  if (const Status valid = config.Validate(); !valid.ok()) {
    return Error(Code::kCorrupt, "arena header: %s", valid.message().c_str());
  }
  const ArenaRegions regions = ArenaRegions::Of(config);
  if (header->class_count != config.class_count || header->total_bytes != regions.total_bytes ||
      bytes < regions.total_bytes) {
    return Error(Code::kCorrupt,
                 "the arena's header tells %llu bytes, its classes need %llu, and %llu are mapped",
                 static_cast<unsigned long long>(header->total_bytes),
                 static_cast<unsigned long long>(regions.total_bytes),
                 static_cast<unsigned long long>(bytes));
  }
  for (uint32_t c = 0; c < config.class_count; ++c) {
    if (header->classes[c].first_slot != regions.classes[c].first_slot ||
        header->classes[c].payload_offset != regions.classes[c].payload_offset) {
      return Error(Code::kCorrupt,
                   "slot class %u of the arena's header is not where its sizes put it", c);
    }
  }
  return {};
}

}  // namespace sysone
