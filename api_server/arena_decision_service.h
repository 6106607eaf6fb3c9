// POST /v1/systemone from the body's JSON to the answer's, over the instance's arena; also what the instance says of itself:
// models, health, metrics. Here the parts meet: request → strategy → engine client → scoring → response.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api_server/decision_request.h"
#include "api_server/decision_response.h"
#include "api_server/decision_service.h"
#include "api_server/engine_client.h"
#include "api_server/errors.h"
#include "api_server/scoring.h"
#include "api_server/strategy.h"
#include "shm_arena/arena.h"

namespace sysone {

struct DecisionSettings {
  std::vector<std::string> served_names;  // the first one stands in answers
  std::string model_description;
  std::string release_date;  // YYYY-MM-DD
  int64_t created = 0;       // seconds since 1970: start of this server
  RequestLimits limits;
  ConfidenceRule confidence = ConfidenceRule::kTypesafe;
  ResponseFields fields = ResponseFields::kVllm;
  bool diagnostics = false;  // when a request does not say
  int64_t request_timeout_us = 0;
  bool log_requests = true;
  uint32_t expected_groups = 1;  // for /ready
  uint32_t expected_api_servers = 1;
};

// Names that clients of the TypeSafe contract use for "whatever is served".
inline constexpr const char* kModelAliases[] = {"jev-latest", "jev-preview"};

class ArenaDecisionService final : public DecisionService {
 public:
  // `arena` and `client` outlive it.
  ArenaDecisionService(Arena& arena, EngineClient& client, std::unique_ptr<const Strategy> strategy,
                       DecisionSettings settings);

  void Decide(const HttpRequest& request, const std::string& request_id, Done done) override;
  bool Quick(const HttpRequest& request) const override;
  std::string ModelsJson() override;
  HealthState Health() override;
  std::string MetricsText() override;

 private:
  struct Decision;

  // Checks and plans; an error ends the decision.
  std::optional<ApiError> Prepare(Decision& decision) const;
  void Run(std::shared_ptr<Decision> decision);
  std::variant<HttpResponse, ApiError> Answered(Decision& decision, EngineClient::Outcome outcome);
  void Reply(Decision& decision, std::variant<HttpResponse, ApiError> outcome) const;
  std::variant<std::vector<Answer>, ApiError> Score(const Decision& decision,
                                                    const JobResult& result) const;
  bool Serves(const std::string& model) const;
  void Count(const Decision& decision, const JobResult& result);

  Arena& arena_;
  EngineClient& client_;
  const std::unique_ptr<const Strategy> strategy_;
  const DecisionSettings settings_;
};

}  // namespace sysone
