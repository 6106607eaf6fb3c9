// Bytes of a token -> a 32-bit value: the one lookup that settles most words of a text, so it is made for speed. Keys of up
// to 15 bytes lie inside the slots: finding one costs two multiplications and, as a rule, one cache line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sysone {

// Filled once, then read by any number of threads. Keys are not empty.
class WordTable {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFF;  // no value may be this
  static constexpr size_t kShortBytes = 15;

  WordTable() : WordTable(0, 0) {}
  // Room for so many keys of up to kShortBytes bytes, and of more. Half of the slots stay free.
  WordTable(size_t short_keys, size_t long_keys)
      : short_(std::bit_ceil(2 * short_keys + 1)), long_(std::bit_ceil(2 * long_keys + 1)) {}

  // Inserts the key or replaces its value.
  void Set(std::string_view key, uint32_t value) {
    if (key.size() <= kShortBytes) {
      const ShortKey packed = Pack(key);
      ShortSlot& slot = short_[ShortPlace(packed)];
      slot = {packed, value};
      return;
    }
    LongSlot& slot = long_[LongPlace(key)];
    if (slot.value == kNone) {
      slot.offset = static_cast<uint32_t>(long_bytes_.size());
      slot.length = static_cast<uint32_t>(key.size());
      long_bytes_.append(key);
    }
    slot.value = value;
  }

  // The value of `key`, or kNone.
  uint32_t Find(std::string_view key) const {
    if (key.size() <= kShortBytes) return short_[ShortPlace(Pack(key))].value;
    return long_[LongPlace(key)].value;
  }

 private:
  struct ShortKey {
    uint64_t low = 0;   // bytes 0–7
    uint64_t high = 0;  // bytes 8–14, and the length in the top byte, so that no key is all zeros
    bool operator==(const ShortKey&) const = default;
  };
  struct ShortSlot {
    ShortKey key;
    uint32_t value = kNone;
  };
  struct LongSlot {
    uint32_t value = kNone;
    uint32_t offset = 0;  // into long_bytes_
    uint32_t length = 0;
  };

  static uint64_t Load(const char* at, size_t bytes) {  // 4 to 8 bytes
    if (bytes == 8) {
      uint64_t word;
      std::memcpy(&word, at, 8);
      return word;
    }
    // Two halves that overlap: no byte outside the key is read.
    uint32_t first, last;
    std::memcpy(&first, at, 4);
    std::memcpy(&last, at + bytes - 4, 4);
    return first | static_cast<uint64_t>(last) << (8 * (bytes - 4));
  }

  static uint64_t LoadUpTo8(const char* at, size_t bytes) {
    if (bytes >= 4) return Load(at, bytes);
    uint64_t word = 0;
    for (size_t i = 0; i < bytes; ++i)
      word |= static_cast<uint64_t>(static_cast<uint8_t>(at[i])) << (8 * i);
    return word;
  }

  static ShortKey Pack(std::string_view key) {
    const uint64_t length = static_cast<uint64_t>(key.size()) << 56;
    if (key.size() <= 8) return {LoadUpTo8(key.data(), key.size()), length};
    return {Load(key.data(), 8), LoadUpTo8(key.data() + 8, key.size() - 8) | length};
  }

  static uint64_t Mix(uint64_t value) {
    value *= 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: spreads nearby keys over the high bits
    return value ^ value >> 32;
  }

  size_t ShortPlace(const ShortKey& key) const {
    const size_t mask = short_.size() - 1;
    size_t place = Mix(key.low ^ Mix(key.high)) & mask;
    while (short_[place].value != kNone && short_[place].key != key) place = (place + 1) & mask;
    return place;
  }

  size_t LongPlace(std::string_view key) const {
    uint64_t hash = key.size();
    for (size_t at = 0; at + 8 <= key.size(); at += 8) hash = Mix(hash ^ Load(key.data() + at, 8));
    hash = Mix(hash ^ Load(key.data() + key.size() - 8, 8));
    const size_t mask = long_.size() - 1;
    size_t place = hash & mask;
    while (long_[place].value != kNone &&
           std::string_view(long_bytes_).substr(long_[place].offset, long_[place].length) != key)
      place = (place + 1) & mask;
    return place;
  }

  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
  std::string long_bytes_;
};

}  // namespace sysone
