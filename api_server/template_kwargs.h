// The arguments of a chat template that a server or a request may set, and how they are laid over
// each other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/json.h"

namespace sysone {

// Why this argument cannot be set, as the rest of a sentence that begins with its name; nullptr
// when it can.
const char* TemplateKwargProblem(std::string_view key, const Json& value);

// `over` laid over `base`, member by member; each is an object or null. Always an object.
Json MergeTemplateKwargs(const Json& base, const Json& over);

}  // namespace sysone
