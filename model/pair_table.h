// A pair of neighbouring token ids -> the rank of the merge that joins them. One 64-bit word a slot, so that a probe
// rarely leaves its cache line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace sysone {

// Filled once, then read by any number of threads.
class PairTable {
 public:
  static constexpr uint32_t kIdBits = 22, kRankBits = 20;
  static constexpr uint32_t kMaxId = (1u << kIdBits) - 1;
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  static constexpr uint32_t kMaxRank = (1u << kRankBits) - 2;  // all ones marks a free slot

  explicit PairTable(size_t pairs = 0) : slots_(std::bit_ceil(2 * pairs + 1), kFree) {}

  // Inserts or replaces. Ids at most kMaxId, rank at most kMaxRank.
  void Set(uint32_t left, uint32_t right, uint32_t rank) {
    const uint64_t key = Key(left, right);
    slots_[Place(key)] = key << kRankBits | rank;
  }

  // kNoRank when the two are never joined.
  uint32_t Find(uint32_t left, uint32_t right) const {
    const uint64_t slot = slots_[Place(Key(left, right))];
    return slot == kFree ? kNoRank : static_cast<uint32_t>(slot & ((1u << kRankBits) - 1));
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};

  static uint64_t Key(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << kIdBits | right;
  }

  size_t Place(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    const uint64_t mixed = key * 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
    size_t place = (mixed ^ mixed >> 32) & mask;
    while (slots_[place] != kFree && slots_[place] >> kRankBits != key) place = (place + 1) & mask;
    return place;
  }

  std::vector<uint64_t> slots_;
};

}  // namespace sysone
