// A decision request, checked: every rule of the request body is applied here, once, so that
// nothing behind this border has to doubt its input. Pure: text in, struct or list of issues out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api_server/validation.h"
#include "base/json.h"

namespace sysone {

// What a question asks for: one of several options, yes or no, or a level.
enum class QuestionType : uint8_t { kChoice, kNoul, kScore };

const char* QuestionTypeName(QuestionType type);  // "choice", "noul", "score"

// One possible answer.
struct Option {
  std::string
      name;  // key in the answer's probabilities: option name as sent | "yes", "no" | "0" … "9"
  std::string text;         // what the model reads: the option's name | "" | the level as text
  std::string description;  // text after the name; empty: none. Not used by score.
  Json as_sent;             // score: the level as it came, for the legend; else null
};

struct Question {
  std::string id;  // byte for byte; never shown to a model
  QuestionType type = QuestionType::kChoice;
  std::string instructions;     // rendered; empty: none
  std::vector<Option> options;  // request order; noul: yes, no; score: lowest level first
};

struct DecisionRequest {
  Json state;
  std::vector<Question> questions;  // request order, 1 … max_questions
  std::string instructions;         // system message; empty: none
  std::string model;                // empty: whatever is served
  Json chat_template_kwargs;        // object as sent, or null
  std::string cache_salt;           // empty: none
  int64_t priority = 0;             // smaller first
  std::string request_id;           // printable ASCII (safe in a header); empty: none
  std::optional<bool> diagnostics;  // empty: the server's default
};

struct RequestLimits {
  int max_questions = 64;
  int max_options = 255;  // of a choice
  int max_depth = 128;    // of JSON nesting
};

// Any thread. kMalformed: invalid UTF-8, or no JSON object to begin with. kInvalidArgument: a JSON
// object that breaks a rule (or its own syntax: one issue of type "json_invalid"); the issues come
// in the order: state, questions (in request order), the other fields. Whether `model` is served is
// not checked here.
OrProblem<DecisionRequest> ParseDecisionRequest(std::string_view body, const RequestLimits& limits);

// Text of a value in a prompt: a string verbatim, null as "", anything else as Python's
// json.dumps(ensure_ascii=False).
std::string RenderText(const Json& value);

}  // namespace sysone
