// SPDX-License-Identifier: Apache-2.0
#include "api_server/decision_response.h"

#include <cinttypes>

#include "base/check.h"
#include "base/log.h"

namespace sysone {
namespace {

void AppendKey(std::string& out, std::string_view key) {
  AppendJsonString(out, key);
  out += ':';
}

// `"name":value` with a comma before it, unless it opens an object.
void AppendField(std::string& out, std::string_view key) {
  if (out.back() != '{') out += ',';
  AppendKey(out, key);
}

void AppendStringField(std::string& out, std::string_view key, std::string_view value) {
  AppendField(out, key);
  AppendJsonString(out, value);
}

void AppendDoubleField(std::string& out, std::string_view key, double value) {
  AppendField(out, key);
  AppendJsonDouble(out, value);
}

void AppendIntegerField(std::string& out, std::string_view key, uint64_t value) {
  AppendField(out, key);
  out += std::to_string(value);
}

void AppendProbabilities(std::string& out, const Question& question, const Answer& answer) {
  AppendField(out, "probabilities");
  out += '{';
  for (size_t i = 0; i < question.options.size(); ++i)
    AppendDoubleField(out, question.options[i].name, answer.probabilities[i]);
  out += '}';
}

void AppendLegend(std::string& out, const Question& question) {
  AppendField(out, "legend");
  out += '{';
  for (const Option& option : question.options) {
    AppendField(out, option.name);
    option.as_sent.DumpTo(out);
  }
  out += '}';
}

void AppendAnswer(std::string& out, const Question& question, const Answer& answer,
                  ResponseFields fields) {
  out += '{';
  AppendStringField(out, "type", QuestionTypeName(question.type));
  switch (question.type) {
    case QuestionType::kChoice:
      AppendStringField(out, "choice", question.options[answer.winner].name);
      AppendProbabilities(out, question, answer);
      AppendDoubleField(out, "confidence", answer.confidence);
      break;
    case QuestionType::kNoul:
      AppendDoubleField(out, "noul", answer.value);
      if (fields == ResponseFields::kVllm) {
        AppendProbabilities(out, question, answer);
        AppendDoubleField(out, "confidence", answer.confidence);
      }
      break;
    case QuestionType::kScore:
      AppendDoubleField(out, "score", answer.value);
      AppendLegend(out, question);
      AppendProbabilities(out, question, answer);
      AppendDoubleField(out, "confidence", answer.confidence);
      break;
  }
  out += '}';
}

void AppendDiagnostics(std::string& out, const DecisionRequest& request,
                       std::span<const Answer> answers, ResponseFields fields) {
  AppendField(out, fields == ResponseFields::kVllm ? "diagnostics" : "x_diagnostics");
  out += '{';
  for (size_t i = 0; i < answers.size(); ++i) {
    SYSONE_CHECK(answers[i].label_mass && answers[i].argmax_is_label, "no diagnostics were read");
    AppendField(out, request.questions[i].id);
    out += '{';
    AppendDoubleField(out, "label_mass", *answers[i].label_mass);
    AppendField(out, "argmax_is_label");
    out += *answers[i].argmax_is_label ? "true" : "false";
    out += '}';
  }
  out += '}';
}

}  // namespace

std::string DecisionId(const std::string& request_id, uint64_t random) {
  return "decision-" + (request_id.empty() ? Format("%016" PRIx64, random) : request_id);
}

std::string WriteDecisionResponse(const DecisionRequest& request, std::span<const Answer> answers,
                                  const ResponseMeta& meta) {
  SYSONE_CHECK(answers.size() == request.questions.size(), "%zu answers to %zu questions",
               answers.size(), request.questions.size());
  std::string out = "{";
  if (meta.fields == ResponseFields::kVllm) {
    AppendStringField(out, "id", meta.id);
    AppendStringField(out, "object", "structured_decision");
    AppendField(out, "created");
    out += std::to_string(meta.created);
  }
  AppendStringField(out, "model", meta.model);
  AppendField(out, "answers");
  out += '{';
  for (size_t i = 0; i < answers.size(); ++i) {
    AppendField(out, request.questions[i].id);
    AppendAnswer(out, request.questions[i], answers[i], meta.fields);
  }
  out += '}';
  AppendField(out, "usage");
  out += '{';
  AppendIntegerField(out, "input_tokens", meta.input_tokens);
  AppendIntegerField(out, "output_tokens", answers.size());
  AppendIntegerField(out, "x_cached_tokens", meta.cached_tokens);
  out += '}';
  if (meta.diagnostics) AppendDiagnostics(out, request, answers, meta.fields);
  out += '}';
  return out;
}

}  // namespace sysone
