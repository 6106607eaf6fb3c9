// Collects the broken rules of one request while its parts are checked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "api_server/validation.h"
#include "base/json.h"

namespace sysone {

// Path into a request: "body", then keys and places.
using Loc = std::vector<ValidationIssue::LocPart>;

// `loc`, one step further.
Loc Under(Loc loc, ValidationIssue::LocPart part);

// What a value is, for messages: "a number", "null".
const char* KindOf(const Json& value);

// A member that is present and not null; else nullptr.
const Json* Given(const Json& object, std::string_view key);

// One thread. Keeps the first kMaxListedIssues issues and drops the rest.
class IssueList {
 public:
  // The message is the path of `loc` and the printf-style rest of the sentence.
  [[gnu::format(printf, 4, 5)]] void Add(const Loc& loc, const char* type, const char* format, ...);

  bool empty() const { return issues_.empty(); }

  // The list as a problem; only when it is not empty.
  RequestProblem Take();

 private:
  std::vector<ValidationIssue> issues_;
};

}  // namespace sysone
