// The rules of one question of a request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api_server/decision_request.h"
#include "api_server/issue_list.h"

namespace sysone {

// The question that `value` describes; what is wrong with it goes to `issues`, and then the result
// is not to be used. `loc` is the question's own place.
Question ParseQuestion(const Loc& loc, const std::string& id, const Json& value,
                       const RequestLimits& limits, IssueList& issues);

}  // namespace sysone
