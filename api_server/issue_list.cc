// SPDX-License-Identifier: Apache-2.0
#include "api_server/issue_list.h"

#include <cstdarg>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace sysone {

Loc Under(Loc loc, ValidationIssue::LocPart part) {
  loc.push_back(std::move(part));
  return loc;
}

const char* KindOf(const Json& value) {
  switch (value.type()) {
    case Json::Type::kNull:
      return "null";
    case Json::Type::kBool:
      return "a boolean";
    case Json::Type::kNumber:
      return "a number";
    case Json::Type::kString:
      return "a string";
    case Json::Type::kArray:
      return "an array";
    case Json::Type::kObject:
      return "an object";
  }
  SYSONE_CHECK(false, "no such JSON type");
}

const Json* Given(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void IssueList::Add(const Loc& loc, const char* type, const char* format, ...) {
  if (issues_.size() >= kMaxListedIssues) return;
  va_list args;
  va_start(args, format);
  issues_.push_back({loc, PathOf(loc) + " " + VFormat(format, args), type});
  va_end(args);
}

RequestProblem IssueList::Take() {
  SYSONE_CHECK(!issues_.empty(), "a problem needs an issue");
  return {Status(Code::kInvalidArgument, issues_.front().msg), std::move(issues_)};
}

}  // namespace sysone
