// The words in which a question is put to an ordinary chat model.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api_server/decision_request.h"
#include "api_server/labels.h"

namespace sysone {

// The last line of a question's block; the same for every question of a type.
std::string_view ClosingLine(QuestionType type);

// The question, one line an option, the closing line. `labels`: one an option.
std::string QuestionBlock(const Question& question, std::span<const Label> labels);

}  // namespace sysone
