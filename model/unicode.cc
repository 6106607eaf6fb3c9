// SPDX-License-Identifier: Apache-2.0
#include "model/unicode.h"

#include <algorithm>

namespace sysone {
namespace {

struct ClassRange {
  char32_t first;
  char32_t last;
  uint8_t bits;
};
#include "model/unicode_classes.inc"

}  // namespace

void AppendUtf8(std::string& out, char32_t value) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

const CharClasses& CharClasses::Get() {
  static const CharClasses classes;
  return classes;
}

CharClasses::CharClasses() {
  std::vector<uint8_t> flat(0x110000, 0);
  for (const ClassRange& range : kClassRanges)
    std::fill(flat.begin() + range.first, flat.begin() + range.last + 1, range.bits);
  for (size_t page = 0; page < page_of_.size(); ++page) {
    std::array<uint8_t, 256> content;
    std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(page * 256), 256, content.begin());
    auto same = std::find(pages_.begin(), pages_.end(), content);
    page_of_[page] = static_cast<uint16_t>(same - pages_.begin());
    if (same == pages_.end()) pages_.push_back(content);
  }
  std::copy_n(flat.begin(), ascii_.size(), ascii_.begin());
}

}  // namespace sysone
