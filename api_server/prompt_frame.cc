// SPDX-License-Identifier: Apache-2.0
#include "api_server/prompt_frame.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace sysone {
namespace {

// The code point that starts at `at` of valid UTF-8.
uint32_t CodePointAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i]));
  };
  if (byte(0) < 0x80) return byte(0);
  if (byte(0) < 0xE0) return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (byte(0) < 0xF0) return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

// What Python's str.strip() takes off.
bool IsPythonSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsTrimmed(std::string_view text) {
  if (text.empty()) return true;
  size_t last = text.size() - 1;
  while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
  return !IsPythonSpace(CodePointAt(text, 0)) && !IsPythonSpace(CodePointAt(text, last));
}

std::optional<ContentGuard::Kind> KindOfName(std::string_view name) {
  using Kind = ContentGuard::Kind;
  static constexpr std::pair<std::string_view, Kind> kNames[] = {
      {"not_empty", Kind::kNotEmpty},
      {"trimmed", Kind::kTrimmed},
      {"starts_otherwise", Kind::kStartsOtherwise},
      {"ends_otherwise", Kind::kEndsOtherwise},
      {"lacks", Kind::kLacks},
      {"differs", Kind::kDiffers}};
  for (const auto& [known, kind] : kNames)
    if (known == name) return kind;
  return std::nullopt;
}

std::optional<size_t> PlaceOf(const Json& value, size_t messages) {
  const std::optional<int64_t> place = value.AsInt64();
  if (!place || *place < 0 || static_cast<size_t>(*place) >= messages) return std::nullopt;
  return static_cast<size_t>(*place);
}

}  // namespace

bool ContentGuard::Holds(std::string_view content) const {
  switch (kind) {
    case Kind::kNotEmpty:
      return !content.empty();
    case Kind::kTrimmed:
      return IsTrimmed(content);
    case Kind::kStartsOtherwise:
      return !content.starts_with(text);
    case Kind::kEndsOtherwise:
      return !content.ends_with(text);
    case Kind::kLacks:
      return content.find(text) == std::string_view::npos;
    case Kind::kDiffers:
      return content != text;
  }
  return false;
}

std::optional<PromptFrame> PromptFrame::FromTrace(const Json& trace, size_t messages) {
  const Json* parts = trace.Find("parts");
  const Json* guards = trace.Find("guards");
  if (parts == nullptr || !parts->is_array() || guards == nullptr || !guards->is_array())
    return std::nullopt;
  PromptFrame frame;
  bool last_seen = false;
  for (const Json& part : parts->items()) {
    if (part.is_string()) {
      if (last_seen) {
        frame.tail_ += part.string();
      } else {
        frame.head_.push_back({part.string(), std::nullopt});
      }
      continue;
    }
    const std::optional<size_t> place = PlaceOf(part, messages);
    if (!place || last_seen) return std::nullopt;
    if (*place + 1 == messages) {
      last_seen = true;
    } else {
      frame.head_.push_back({"", place});
    }
  }
  if (!last_seen) return std::nullopt;
  for (const Json& guard : guards->items()) {
    if (!guard.is_array() || guard.items().size() != 3 || !guard.items()[0].is_string() ||
        !guard.items()[2].is_string())
      return std::nullopt;
    const auto kind = KindOfName(guard.items()[0].string());
    const auto place = PlaceOf(guard.items()[1], messages);
    if (!kind || !place) return std::nullopt;
    frame.guards_.push_back({*kind, *place, guard.items()[2].string()});
  }
  return frame;
}

bool PromptFrame::Fits(std::span<const std::string_view> contents) const {
  return std::all_of(guards_.begin(), guards_.end(), [&](const ContentGuard& guard) {
    return guard.Holds(contents[guard.message]);
  });
}

void PromptFrame::AppendHead(std::span<const std::string_view> contents, std::string& out) const {
  for (const Part& part : head_)
    out += part.message ? contents[*part.message] : std::string_view(part.text);
}

}  // namespace sysone
