// SPDX-License-Identifier: Apache-2.0
#include "api_server/template_kwargs.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"

namespace sysone {
namespace {

// Arguments of the template call that are the server's own.
constexpr std::array<std::string_view, 7> kReserved = {
    "messages",      "tools",   "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize"};

// Python's bool(value), as a template's `if` sees it.
bool IsTruthy(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return false;
    case Json::Type::kBool:
      return value.boolean();
    case Json::Type::kNumber:
      return value.AsDouble() != 0.0;
    case Json::Type::kString:
      return !value.string().empty();
    case Json::Type::kArray:
      return !value.items().empty();
    case Json::Type::kObject:
      return !value.members().empty();
  }
  SYSONE_CHECK(false, "no such JSON type");
}

}  // namespace

const char* TemplateKwargProblem(std::string_view key, const Json& value) {
  if (std::find(kReserved.begin(), kReserved.end(), key) != kReserved.end())
    return "is set by the server: remove it";
  if (key == "enable_thinking" && IsTruthy(value))
    return "must be false or absent: the answer is the first token of the reply, so there is no "
           "room to think";
  return nullptr;
}

Json MergeTemplateKwargs(const Json& base, const Json& over) {
  std::vector<Json::Member> members;
  if (base.is_object()) members = base.members();
  if (over.is_object()) {
    for (const auto& [key, value] : over.members()) {
      const auto at =
          std::find_if(members.begin(), members.end(),
                       [&key = key](const Json::Member& member) { return member.first == key; });
      if (at == members.end()) {
        members.emplace_back(key, value);
      } else {
        at->second = value;
      }
    }
  }
  return Json::Object(std::move(members));
}

}  // namespace sysone
