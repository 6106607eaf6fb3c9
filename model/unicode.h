// Character classes and UTF-8 as the tokenizers see them. The classes are those of the `tokenizers` library's regex
// engine, not of one Unicode release: ids must not depend on which ICU a machine has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sysone {

// Bits of a character's class. The numbers are those that scripts/make_unicode_tables.py writes.
enum CharClass : uint8_t {
  kLetter = 1,     // \p{L}
  kNumber = 2,     // \p{N}
  kMark = 4,       // \p{M}
  kSpace = 8,      // \s
  kDigit = 16,     // what the library's Digits step splits at: numbers of a slightly newer Unicode
  kWordChar = 32,  // \w, for added tokens that stand only as a single word
  kNfcCheck = 64,  // may change under NFC, or may change what stands before it
};

struct CodePoint {
  char32_t value;
  uint32_t length;  // bytes read, 1 to 4
};

// Reads the code point at `at` (at < end). Valid UTF-8 is expected; anything else yields U+FFFD and one byte, so that a
// broken string is never read past its end.
inline CodePoint DecodeUtf8(const char* at, const char* end) {
  const auto byte = [at](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(at[i])); };
  const uint32_t lead = byte(0);
  const auto left = static_cast<size_t>(end - at);
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC0 && lead < 0xE0 && left >= 2) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead >= 0xE0 && lead < 0xF0 && left >= 3)
    return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  if (lead >= 0xF0 && lead < 0xF5 && left >= 4) {
    const uint32_t value =
        (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    if (value <= 0x10FFFF) return {value, 4};
  }
  return {0xFFFD, 1};
}

// Appends a code point (at most U+10FFFF) as UTF-8.
void AppendUtf8(std::string& out, char32_t value);

// One byte of CharClass bits for every code point, in shared pages of 256. Immutable; any thread may read.
class CharClasses {
 public:
  static const CharClasses& Get();

  uint8_t Of(char32_t value) const { return pages_[page_of_[value >> 8]][value & 0xFF]; }
  uint8_t OfAscii(uint8_t value) const { return ascii_[value]; }  // value < 128

 private:
  CharClasses();

  std::array<uint8_t, 128> ascii_;
  std::array<uint16_t, 0x1100> page_of_;
  std::vector<std::array<uint8_t, 256>> pages_;
};

}  // namespace sysone
