// How a model family is asked: from a checked request to the tokens that one forward pass reads,
// and the tokens whose scores are the answers. One implementation a family; the rest of the server
// sees only this.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "api_server/decision_request.h"
#include "api_server/validation.h"
#include "model/tokenizer.h"

namespace sysone {

// One question of a job. Its prompt is tokens[0, prefix_len) followed by tokens[suffix_begin,
// suffix_end).
struct QuestionPlan {
  uint32_t suffix_begin = 0;  // in DecisionJobPlan::tokens
  uint32_t suffix_end = 0;  // > suffix_begin; the answer is read at the last token, suffix_end − 1
  uint32_t prompt_tokens = 0;      // prefix_len + suffix length
  std::vector<TokenId> label_ids;  // one an option, in option order; all different
};

// All questions of a request as one job: what they share once, then what each adds.
struct DecisionJobPlan {
  std::vector<TokenId> tokens;  // shared prefix, then the suffixes in question order, without gaps
  uint32_t prefix_len = 0;      // 0 when there is one question
  std::vector<QuestionPlan> questions;  // request order

  // Whole prompts, summed: a shared prefix counts once per question.
  uint64_t input_tokens() const;
};

// Immutable after it is built; any thread may plan.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // kInvalidArgument: this model cannot be asked so (too many options, template refuses);
  // kTooLarge: a prompt is longer than the model takes, both numbers in the message.
  virtual OrProblem<DecisionJobPlan> Plan(const DecisionRequest& request) const = 0;

  // Whether planning a request without chat_template_kwargs takes little time, in proportion to its size.
  virtual bool quick() const = 0;
};

}  // namespace sysone
