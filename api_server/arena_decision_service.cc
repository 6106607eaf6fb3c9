// SPDX-License-Identifier: Apache-2.0
#include "api_server/arena_decision_service.h"

#include <algorithm>
#include <limits>

#include "api_server/server_timing.h"
#include "base/clock.h"
#include "base/log.h"

namespace sysone {
namespace {

// FNV-1a, 64 bits; 0 stays free for "no salt".
uint64_t SaltHash(const std::string& salt) {
  if (salt.empty()) return 0;
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : salt) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

// The client is told that something failed inside; the log is told what.
ApiError FromStatus(const Status& status) {
  if (status.code() == Code::kInternal) SYSONE_ERROR("%s", status.message().c_str());
  return ErrorFrom(status);
}

ApiError FromRefusal(const JobRefusal& refusal) {
  ApiError error = FromStatus(refusal.status);
  if (refusal.retry_after_us > 0)
    error.retry_after_s =
        static_cast<int>(std::min<int64_t>(refusal.retry_after_us / 1'000'000 + 1, 60));
  return error;
}

double Milliseconds(int64_t us) { return static_cast<double>(us) * 1e-3; }

void AppendModel(std::string& out, const std::string& name, const DecisionSettings& settings) {
  out += "{\"name\":";
  AppendJsonString(out, name);
  out += ",\"description\":";
  AppendJsonString(out, settings.model_description);
  out += ",\"release_date\":";
  AppendJsonString(out, settings.release_date);
  out += "}";
}

}  // namespace

// One request, from its body to its answer.
struct ArenaDecisionService::Decision {
  Decision(const HttpRequest& http_, std::string request_id_, Done done_)
      : http(http_), request_id(std::move(request_id_)), done(std::move(done_)) {}

  // Of the caller, who keeps the request until `done`.
  const HttpRequest& http;
  const std::string request_id;
  const Done done;

  DecisionRequest request;
  DecisionJobPlan plan;
  bool diagnostics = false;

  int64_t begin_us = MonotonicUs();
  int64_t planned_us = 0;  // how long parsing, template and tokenizer took
  int64_t queue_us = 0;
  int64_t pass_us = 0;
  uint64_t input_tokens = 0;
};

ArenaDecisionService::ArenaDecisionService(Arena& arena, EngineClient& client,
                                           std::unique_ptr<const Strategy> strategy,
                                           DecisionSettings settings)
    : arena_(arena),
      client_(client),
      strategy_(std::move(strategy)),
      settings_(std::move(settings)) {
  SYSONE_CHECK(!settings_.served_names.empty(), "a served model needs a name");
}

void ArenaDecisionService::Decide(const HttpRequest& request, const std::string& request_id,
                                  Done done) {
  auto decision = std::make_shared<Decision>(request, request_id, std::move(done));
  if (auto error = Prepare(*decision)) return Reply(*decision, *std::move(error));
  Run(std::move(decision));
}

bool ArenaDecisionService::Quick(const HttpRequest& request) const {
  // Some thousands of tokens: a fraction of a millisecond.
  constexpr size_t kMostBytes = 16 << 10;
  return strategy_->quick() && request.body.size() <= kMostBytes &&
         request.body.find("\"chat_template_kwargs\"") == std::string::npos;
}

std::optional<ApiError> ArenaDecisionService::Prepare(Decision& decision) const {
  auto parsed = ParseDecisionRequest(decision.http.body, settings_.limits);
  if (auto* problem = std::get_if<RequestProblem>(&parsed)) return ErrorFrom(std::move(*problem));
  decision.request = std::get<DecisionRequest>(std::move(parsed));
  const DecisionRequest& request = decision.request;
  if (!Serves(request.model)) {
    ApiError error = ErrorFrom(Status(
        Code::kNotFound,
        "model '" + Shown(request.model) + "' is not served here; GET /v1/models lists what is"));
    error.param = "model";
    return error;
  }
  auto planned = strategy_->Plan(request);
  if (auto* problem = std::get_if<RequestProblem>(&planned)) return ErrorFrom(std::move(*problem));
  decision.plan = std::get<DecisionJobPlan>(std::move(planned));
  decision.planned_us = MonotonicUs() - decision.begin_us;
  decision.input_tokens = decision.plan.input_tokens();
  decision.diagnostics = request.diagnostics.value_or(settings_.diagnostics);
  return std::nullopt;
}

void ArenaDecisionService::Run(std::shared_ptr<Decision> decision) {
  arena_.metrics().Observe(Histogram::kTokenizeTime, static_cast<uint64_t>(decision->planned_us));
  const DecisionRequest& request = decision->request;
  const JobRequest job{decision->plan,
                       decision->diagnostics || settings_.confidence == ConfidenceRule::kVllm,
                       SaltHash(request.cache_salt),
                       static_cast<int32_t>(std::clamp<int64_t>(
                           request.priority, std::numeric_limits<int32_t>::min(),
                           std::numeric_limits<int32_t>::max())),
                       decision->http.received_us + settings_.request_timeout_us,
                       decision->http.client_gone};
  client_.Start(job, [this, decision](EngineClient::Outcome outcome) {
    Reply(*decision, Answered(*decision, std::move(outcome)));
  });
}

std::variant<HttpResponse, ApiError> ArenaDecisionService::Answered(Decision& decision,
                                                                    EngineClient::Outcome outcome) {
  if (const auto* refusal = std::get_if<JobRefusal>(&outcome)) return FromRefusal(*refusal);
  const JobResult& result = std::get<JobResult>(outcome);
  decision.queue_us = result.queue_us;
  decision.pass_us = result.pass_us;
  auto scored = Score(decision, result);
  if (auto* error = std::get_if<ApiError>(&scored)) return std::move(*error);
  Count(decision, result);
  ResponseMeta meta;
  meta.id = DecisionId(decision.request_id, 0);
  meta.created = time(nullptr);
  meta.model = settings_.served_names.front();
  meta.input_tokens = decision.input_tokens;
  meta.cached_tokens = result.cached_tokens;
  meta.diagnostics = decision.diagnostics;
  meta.fields = settings_.fields;
  HttpResponse response;
  response.body =
      WriteDecisionResponse(decision.request, std::get<std::vector<Answer>>(scored), meta);
  return response;
}

void ArenaDecisionService::Reply(Decision& decision,
                                 std::variant<HttpResponse, ApiError> outcome) const {
  HttpResponse response;
  if (const auto* error = std::get_if<ApiError>(&outcome)) {
    response = ErrorResponse(*error);
  } else {
    response = std::get<HttpResponse>(std::move(outcome));
  }
  std::string timings;
  AppendServerTiming(timings, "queue", decision.queue_us);
  AppendServerTiming(timings, "tokenise", decision.planned_us);
  AppendServerTiming(timings, "pass", decision.pass_us);
  response.headers.Set("Server-Timing", std::move(timings));
  if (settings_.log_requests)
    SYSONE_INFO("%s %s %d, %zu questions, %llu tokens, queue %.1f ms, pass %.1f ms, total %.1f ms",
                decision.request_id.c_str(), decision.http.peer.c_str(), response.status,
                decision.request.questions.size(),
                static_cast<unsigned long long>(decision.input_tokens),
                Milliseconds(decision.queue_us), Milliseconds(decision.pass_us),
                Milliseconds(MonotonicUs() - decision.begin_us));
  decision.done(std::move(response));
}

std::variant<std::vector<Answer>, ApiError> ArenaDecisionService::Score(
    const Decision& decision, const JobResult& result) const {
  std::vector<Answer> answers;
  for (size_t i = 0; i < decision.request.questions.size(); ++i) {
    const QuestionResult& read = result.questions[i];
    const LabelReadout readout{read.label_logits, decision.plan.questions[i].label_ids,
                               read.full_head};
    auto answer = ScoreLabels(decision.request.questions[i].type, readout, settings_.confidence);
    if (!answer.ok()) return FromStatus(answer.status());
    answers.push_back(*std::move(answer));
  }
  return answers;
}

bool ArenaDecisionService::Serves(const std::string& model) const {
  if (model.empty()) return true;
  const auto is_it = [&](const auto& name) { return model == name; };
  return std::any_of(settings_.served_names.begin(), settings_.served_names.end(), is_it) ||
         std::any_of(std::begin(kModelAliases), std::end(kModelAliases), is_it);
}

void ArenaDecisionService::Count(const Decision& decision, const JobResult& result) {
  Metrics metrics = arena_.metrics();
  for (const Question& question : decision.request.questions) {
    switch (question.type) {
      case QuestionType::kChoice:
        metrics.Add(Counter::kDecisionsChoice);
        break;
      case QuestionType::kNoul:
        metrics.Add(Counter::kDecisionsNoul);
        break;
      case QuestionType::kScore:
        metrics.Add(Counter::kDecisionsScore);
        break;
    }
  }
  metrics.Add(Counter::kPromptTokens, decision.input_tokens);
  metrics.Add(Counter::kCachedTokens, result.cached_tokens);
}

std::string ArenaDecisionService::ModelsJson() {
  std::string out = "{\"models\":[";
  for (size_t i = 0; i < settings_.served_names.size(); ++i) {
    if (i > 0) out += ',';
    AppendModel(out, settings_.served_names[i], settings_);
  }
  out += "],\"object\":\"list\",\"data\":[";
  for (size_t i = 0; i < settings_.served_names.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"id\":";
    AppendJsonString(out, settings_.served_names[i]);
    out += Format(",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"sysone\"}",
                  static_cast<long long>(settings_.created));
  }
  return out + "]}";
}

HealthState ArenaDecisionService::Health() {
  uint32_t groups = 0;
  const BoardSnapshot board = arena_.board().Snapshot();
  for (uint32_t g = 0; g < board.group_count; ++g)
    groups += board.groups[g].state == GroupState::kReady;
  uint32_t servers = 0;
  ProcessTable processes = arena_.processes();
  for (uint32_t line = 0; line < processes.lines_used(); ++line) {
    const auto process = processes.Read(ProcessId{line});
    servers += process && process->role == ProcessRole::kApiServer &&
               process->phase == ProcessPhase::kReady;
  }
  HealthState health;
  health.healthy = groups > 0;
  health.ready = groups >= settings_.expected_groups && servers >= settings_.expected_api_servers;
  if (!health.ready)
    health.message = Format("%u of %u worker groups and %u of %u API servers are ready", groups,
                            settings_.expected_groups, servers, settings_.expected_api_servers);
  return health;
}

std::string ArenaDecisionService::MetricsText() {
  std::string out;
  arena_.AppendMetricsText(out);
  return out;
}

}  // namespace sysone
