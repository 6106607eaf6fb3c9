// The byte-level spelling of tokens: files write each byte of a token as one printable character (a space as U+0120 …).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sysone {

// Puts into `bytes` what `spelling` stands for. False when it has a character outside the 256 of the alphabet.
bool BytesFromSpelling(std::string_view spelling, std::string& bytes);

// The character that stands for a byte, as UTF-8.
std::string SpellingOfByte(uint8_t byte);

}  // namespace sysone
