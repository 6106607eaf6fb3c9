// SPDX-License-Identifier: Apache-2.0
#include "api_server/scoring.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sysone {
namespace {

// Softmax in double with the maximum taken off, so that no exponent can overflow.
std::vector<double> Softmax(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i)
    sum += p[i] = std::exp(static_cast<double>(logits[i]) - top);
  for (double& value : p) value /= sum;
  return p;
}

double ExpectedLevel(std::span<const double> p) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += static_cast<double>(i) * p[i];
  return sum;
}

// How far the winner stands above the uniform answer: 0 there, 1 when it is certain.
double DistanceFromUniform(double top, size_t n) {
  if (n <= 1) return 1;
  const double uniform = 1 / static_cast<double>(n);
  return std::clamp((top - uniform) / (1 - uniform), 0.0, 1.0);
}

// Spread round the mode against the spread of the uniform answer round its middle.
double ScoreConfidence(std::span<const double> p, size_t mode) {
  if (p.size() <= 1) return 1;
  const double n = static_cast<double>(p.size());
  const double m = static_cast<double>(mode);
  double spread = 0, uniform_spread = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double level = static_cast<double>(i);
    spread += p[i] * std::abs(level - m);
    uniform_spread += std::abs(level - (n - 1) / 2) / n;
  }
  return std::clamp(1 - spread / uniform_spread, 0.0, 1.0);
}

double TypesafeConfidence(QuestionType type, const Answer& answer) {
  const std::vector<double>& p = answer.probabilities;
  if (type == QuestionType::kScore) return ScoreConfidence(p, answer.winner);
  return DistanceFromUniform(p[answer.winner], p.size());
}

// The labels' mass can pass 1 only by the rounding of log_sum_exp: a float32 near 32 is off by up to 2e-6, which moves
// the mass by as much. A thousand times that is no rounding any more.
constexpr double kMassSlack = 2e-3;

Status ReadFullHead(const LabelReadout& readout, Answer& answer) {
  const FullHead& head = *readout.full_head;
  if (!std::isfinite(head.log_sum_exp))
    return Error(Code::kInternal, "the model's log-sum-exp is not finite");
  double mass = 0;
  for (const float logit : readout.logits)
    mass += std::exp(static_cast<double>(logit) - static_cast<double>(head.log_sum_exp));
  if (!(mass <= 1 + kMassSlack))
    return Error(Code::kInternal, "the labels' share of the vocabulary is %.6g, above 1", mass);
  answer.label_mass = std::min(mass, 1.0);
  answer.argmax_is_label = std::find(readout.label_ids.begin(), readout.label_ids.end(),
                                     head.argmax) != readout.label_ids.end();
  return {};
}

}  // namespace

Result<Answer> ScoreLabels(QuestionType type, const LabelReadout& readout, ConfidenceRule rule) {
  SYSONE_CHECK(!readout.logits.empty() && readout.logits.size() == readout.label_ids.size(),
               "%zu scores for %zu labels", readout.logits.size(), readout.label_ids.size());
  SYSONE_CHECK(rule == ConfidenceRule::kTypesafe || readout.full_head.has_value(),
               "this confidence needs the full head");
  for (size_t i = 0; i < readout.logits.size(); ++i)
    if (!std::isfinite(readout.logits[i]))
      return Error(Code::kInternal, "the model's score of label %zu is not finite", i);

  Answer answer;
  answer.type = type;
  answer.probabilities = Softmax(readout.logits);
  const auto& p = answer.probabilities;
  answer.winner = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
  switch (type) {
    case QuestionType::kChoice:
      answer.value = p[answer.winner];
      break;
    case QuestionType::kNoul:
      answer.value = p[0];
      break;
    case QuestionType::kScore:
      answer.value = ExpectedLevel(p);
      break;
  }
  if (readout.full_head) SYSONE_RETURN_IF_ERROR(ReadFullHead(readout, answer));
  answer.confidence = rule == ConfidenceRule::kVllm ? p[answer.winner] * *answer.label_mass
                                                    : TypesafeConfidence(type, answer);
  return answer;
}

}  // namespace sysone
