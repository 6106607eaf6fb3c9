// From the scores of a question's labels to its answer: probabilities, winner, value, confidence.
// Pure arithmetic.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "api_server/decision_request.h"
#include "base/status.h"
#include "model/tokenizer.h"

namespace sysone {

enum class ConfidenceRule : uint8_t {
  kTypesafe,  // distance from the uniform answer, in [0, 1]
  kVllm,      // probability of the winner times the labels' share of the whole vocabulary; needs
              // FullHead
};

// What only a pass over the whole vocabulary can tell; on the scale of the label logits.
struct FullHead {
  float log_sum_exp = 0;
  TokenId argmax = -1;  // first of the largest
};

// What a worker read for one question.
struct LabelReadout {
  std::span<const float>
      logits;  // one a label, in option order; logits or log-probabilities, as FullHead is
  std::span<const TokenId> label_ids;
  std::optional<FullHead> full_head;
};

struct Answer {
  QuestionType type = QuestionType::kChoice;
  std::vector<double> probabilities;  // one an option; they sum to 1
  size_t winner = 0;                  // first of the most probable
  double value = 0;                   // noul: P(yes); score: Σ i·p_i; choice: P(winner)
  double confidence = 0;              // in [0, 1]
  std::optional<double> label_mass;   // Σ of the labels' full-vocabulary probabilities, in [0, 1]
  std::optional<bool> argmax_is_label;
};

// kInternal when a number of the readout is NaN or infinite: never a made-up answer. Any thread.
Result<Answer> ScoreLabels(QuestionType type, const LabelReadout& readout, ConfidenceRule rule);

}  // namespace sysone
