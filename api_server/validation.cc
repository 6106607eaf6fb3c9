// SPDX-License-Identifier: Apache-2.0
#include "api_server/validation.h"

namespace sysone {

std::string PathOf(const std::vector<ValidationIssue::LocPart>& loc) {
  std::string path;
  for (size_t i = loc.size() > 1 ? 1 : 0; i < loc.size(); ++i) {
    if (!path.empty()) path += '.';
    if (const auto* key = std::get_if<std::string>(&loc[i])) {
      path += Shown(*key);
    } else {
      path += std::to_string(std::get<int64_t>(loc[i]));
    }
  }
  return path;
}

std::string Shown(const std::string& text) {
  constexpr size_t kShownBytes = 64;
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;  // continuation byte of UTF-8
  return text.substr(0, end) + "…";
}

}  // namespace sysone
