// SPDX-License-Identifier: Apache-2.0
#include "api_server/question_block.h"

#include "base/check.h"

namespace sysone {

std::string_view ClosingLine(QuestionType type) {
  switch (type) {
    case QuestionType::kChoice:
      return "Answer with the letter of one option only.";
    case QuestionType::kNoul:
      return "Answer with yes or no only.";
    case QuestionType::kScore:
      return "Answer with the number of one level only.";
  }
  SYSONE_CHECK(false, "no such question type");
}

std::string QuestionBlock(const Question& question, std::span<const Label> labels) {
  SYSONE_CHECK(labels.size() == question.options.size(), "%zu labels for %zu options",
               labels.size(), question.options.size());
  std::string block;
  if (!question.instructions.empty()) {
    block += "Question: ";
    block += question.instructions;
    block += '\n';
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    const Option& option = question.options[i];
    block += labels[i].text;
    if (question.type == QuestionType::kNoul) {
      if (!option.description.empty()) block += ": " + option.description;
    } else {
      block += ": " + option.text;
      if (!option.description.empty()) block += " - " + option.description;
    }
    block += '\n';
  }
  block += ClosingLine(question.type);
  return block;
}

}  // namespace sysone
