// SPDX-License-Identifier: Apache-2.0
#include "api_server/strategy.h"

namespace sysone {

uint64_t DecisionJobPlan::input_tokens() const {
  uint64_t sum = 0;
  for (const QuestionPlan& question : questions) sum += question.prompt_tokens;
  return sum;
}

}  // namespace sysone
