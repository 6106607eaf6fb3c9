// SPDX-License-Identifier: Apache-2.0
#include "model/byte_level.h"

#include <array>

#include "model/unicode.h"

namespace sysone {
namespace {

// Printable Latin-1 stands for itself; the other 68 bytes get the characters from U+0100 on, in order.
constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint16_t, 256> kCharOfByte = [] {
  std::array<uint16_t, 256> chars{};
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte)
    chars[byte] = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
  return chars;
}();

constexpr uint32_t kCharCount = 0x100 + 68;
constexpr uint16_t kNoByte = 0xFFFF;
constexpr std::array<uint16_t, kCharCount> kByteOfChar = [] {
  std::array<uint16_t, kCharCount> bytes{};
  for (uint16_t& byte : bytes) byte = kNoByte;
  for (uint32_t byte = 0; byte < 256; ++byte)
    bytes[kCharOfByte[byte]] = static_cast<uint16_t>(byte);
  return bytes;
}();

}  // namespace

bool BytesFromSpelling(std::string_view spelling, std::string& bytes) {
  bytes.clear();
  const char* at = spelling.data();
  const char* const end = at + spelling.size();
  while (at < end) {
    const CodePoint c = DecodeUtf8(at, end);
    if (c.value >= kCharCount || kByteOfChar[c.value] == kNoByte) return false;
    bytes.push_back(static_cast<char>(kByteOfChar[c.value]));
    at += c.length;
  }
  return true;
}

std::string SpellingOfByte(uint8_t byte) {
  std::string spelling;
  AppendUtf8(spelling, kCharOfByte[byte]);
  return spelling;
}

}  // namespace sysone
