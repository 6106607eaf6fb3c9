// SPDX-License-Identifier: Apache-2.0
#include "base/config_file.h"

#include "base/json.h"

namespace sysone {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Cuts a comment: a '#' at the start or behind a space, outside quotes.
std::string_view WithoutComment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      const bool escaped =
          quote == '"' ? c == '\\' : c == '\'' && line.substr(i + 1).starts_with('\'');
      if (escaped) {
        ++i;
      } else if (c == quote) {
        quote = 0;
      }
    } else if ((c == '"' || c == '\'') &&
               (i == 0 || std::string_view(" [,{:-").find(line[i - 1]) != line.npos)) {
      quote = c;
    } else if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

Status LineError(int line, const char* what) {
  return Error(Code::kInvalidArgument, "line %d: %s", line, what);
}

// A plain or quoted value.
Result<std::string> Scalar(std::string_view text, int line) {
  if (text.starts_with('"')) {
    auto json = Json::Parse(text);
    if (!json.ok() || !json->is_string())
      return LineError(line, "a double-quoted value does not end properly");
    return json->string();
  }
  if (text.starts_with('\'')) {
    std::string out;
    for (size_t i = 1; i < text.size(); ++i) {
      if (text[i] != '\'') {
        out += text[i];
      } else if (i + 1 < text.size() && text[i + 1] == '\'') {
        out += text[i++];
      } else if (i + 1 == text.size()) {
        return out;
      } else {
        break;
      }
    }
    return LineError(line, "a single-quoted value does not end properly");
  }
  if (text == "|" || text == ">" || text.starts_with('&') || text.starts_with('*') ||
      text.starts_with('!'))
    return LineError(line, "only plain values, quoted values, lists and JSON objects are read");
  return std::string(text);
}

// "[a, b]": items are plain or quoted.
Status InlineList(std::string_view text, int line, std::vector<std::string>& out) {
  if (!text.ends_with(']')) return LineError(line, "a list in one line ends with ']'");
  text = Trim(text.substr(1, text.size() - 2));
  while (!text.empty()) {
    size_t end = 0;
    if (text[0] == '"' || text[0] == '\'') {
      for (end = 1; end < text.size() && text[end] != text[0]; ++end)
        if (text[end] == '\\' && text[0] == '"') ++end;
    }
    end = std::min(text.find(',', std::min(end, text.size())), text.size());
    SYSONE_ASSIGN_OR_RETURN(std::string item, Scalar(Trim(text.substr(0, end)), line));
    out.push_back(std::move(item));
    if (end == text.size()) return {};
    text = Trim(text.substr(end + 1));
    if (text.empty()) return LineError(line, "a list has an empty item");
  }
  return {};
}

Status Value(std::string_view text, int line, std::vector<std::string>& out) {
  if (text.starts_with('[')) return InlineList(text, line, out);
  if (text.starts_with('{')) {
    if (!Json::Parse(text).ok()) return LineError(line, "a value in braces must be a JSON object");
    out.emplace_back(text);
    return {};
  }
  SYSONE_ASSIGN_OR_RETURN(std::string scalar, Scalar(text, line));
  out.push_back(std::move(scalar));
  return {};
}

}  // namespace

Result<std::vector<ConfigEntry>> ParseConfig(std::string_view text) {
  std::vector<ConfigEntry> entries;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view raw = WithoutComment(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view line = Trim(raw);
    if (line.empty() || line == "---") continue;
    if (line == "-" || line.starts_with("- ")) {
      const bool open = !entries.empty() && entries.back().line < 0;
      if (!open) return LineError(number, "a list item without a key above it");
      SYSONE_ASSIGN_OR_RETURN(std::string item, Scalar(Trim(line.substr(1)), number));
      entries.back().values.push_back(std::move(item));
      continue;
    }
    if (raw[0] == ' ' || raw[0] == '\t')
      return LineError(number, "keys inside keys are not read; one flag a line");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || (colon + 1 < line.size() && line[colon + 1] != ' '))
      return LineError(number, "expected 'flag: value'");
    ConfigEntry entry{std::string(Trim(line.substr(0, colon))), {}, number};
    const std::string_view value = Trim(line.substr(colon + 1));
    // A negative line marks an entry that waits for its "- item" lines; it is put right below.
    if (value.empty()) {
      entry.line = -number;
    } else {
      SYSONE_RETURN_IF_ERROR(Value(value, number, entry.values));
    }
    for (const ConfigEntry& other : entries)
      if (other.key == entry.key) return LineError(number, "the same flag stands twice");
    entries.push_back(std::move(entry));
  }
  for (ConfigEntry& entry : entries) {
    if (entry.line < 0) entry.line = -entry.line;
    if (entry.values.empty()) return LineError(entry.line, "a flag without a value");
  }
  return entries;
}

}  // namespace sysone
