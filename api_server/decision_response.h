// The body of a 200: answers as the clients of both contracts read them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "api_server/decision_request.h"
#include "api_server/scoring.h"

namespace sysone {

enum class ResponseFields : uint8_t {
  kVllm,      // everything
  kTypesafe,  // only what the TypeSafe contract knows; what else is asked for gets the prefix x_
};

struct ResponseMeta {
  std::string id;              // from DecisionId
  int64_t created = 0;         // seconds since 1970
  std::string model;           // served name
  uint64_t input_tokens = 0;   // DecisionJobPlan::input_tokens()
  uint64_t cached_tokens = 0;  // of these, found in the prefix cache
  bool diagnostics =
      false;  // write them; every answer must then have label_mass and argmax_is_label
  ResponseFields fields = ResponseFields::kVllm;
};

// "decision-" and the request's own id, or 16 hex digits of `random` when it has none.
std::string DecisionId(const std::string& request_id, uint64_t random);

// JSON text. `answers` are in the order of request.questions. Any thread.
std::string WriteDecisionResponse(const DecisionRequest& request, std::span<const Answer> answers,
                                  const ResponseMeta& meta);

}  // namespace sysone
