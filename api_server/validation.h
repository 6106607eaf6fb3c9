// What is wrong with a request that is valid JSON, as plain data: filled by the decision layer,
// written into HTTP bodies by the error writer. Apart from both, so that neither needs the other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace sysone {

// One broken rule. `loc` leads from "body" to the value: keys as strings, array places as integers.
struct ValidationIssue {
  using LocPart = std::variant<std::string, int64_t>;

  std::vector<LocPart> loc;
  std::string msg;   // names the field and says what to change
  std::string type;  // machine-readable: "missing", "string_type", "extra_forbidden", …
};

// Most issues that one answer lists; later ones are left out.
inline constexpr size_t kMaxListedIssues = 10;

// Why a request cannot be served. `status` alone decides the HTTP status; its message is the first
// issue's, or the whole story when there are no issues. `issues` has 1 … kMaxListedIssues entries
// when the code is kInvalidArgument, and one (type "json_invalid") when it is kMalformed.
struct RequestProblem {
  Status status;
  std::vector<ValidationIssue> issues;
};

// A value, or the problem that stands in its way.
template <class T>
using OrProblem = std::variant<T, RequestProblem>;

// "questions.team.criteria" of {"body", "questions", "team", "criteria"}, "body" of {"body"}: how
// messages name a field. Long keys, which are the client's, are cut.
std::string PathOf(const std::vector<ValidationIssue::LocPart>& loc);

// `text` when short, else its beginning, cut between characters, and "…".
std::string Shown(const std::string& text);

// The problem of one broken rule.
inline RequestProblem OneIssue(ValidationIssue issue) {
  RequestProblem problem{Status(Code::kInvalidArgument, issue.msg), {}};
  problem.issues.push_back(std::move(issue));
  return problem;
}

}  // namespace sysone
