// Entries of the Server-Timing header. Apart from printf, because every answer has some and printf's way of writing a double is
// long.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace sysone {

// Appends `name;dur=1.234`, behind a comma if something stands there already: milliseconds of `us` microseconds. A negative
// time, which only a clock that jumps gives, is written as 0.
inline void AppendServerTiming(std::string& header, std::string_view name, int64_t us) {
  us = std::max<int64_t>(us, 0);
  char digits[24];
  char* end = std::to_chars(digits, digits + sizeof digits - 4, us / 1000).ptr;
  *end++ = '.';
  for (const int64_t place : {100, 10, 1}) *end++ = static_cast<char>('0' + us / place % 10);
  if (!header.empty()) header += ", ";
  header.append(name).append(";dur=").append(digits, end);
}

}  // namespace sysone
