// SPDX-License-Identifier: Apache-2.0
#include "api_server/arena_decision_service.h"

#include <algorithm>
#include <limits>

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

struct ArenaDecisionService::Timing {
  int64_t begin_us = MonotonicUs();
  int64_t planned_us = 0;  // how long parsing, template and tokenizer took
  int64_t queue_us = 0;
  int64_t pass_us = 0;
  uint64_t questions = 0;
  uint64_t input_tokens = 0;

  std::string Header() const {
    return Format("queue;dur=%.3f, tokenise;dur=%.3f, pass;dur=%.3f", Milliseconds(queue_us),
                  Milliseconds(planned_us), Milliseconds(pass_us));
  }
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

HttpResponse ArenaDecisionService::Decide(const HttpRequest& request,
                                          const std::string& request_id) {
  Timing timing;
  auto outcome = TryDecide(request, request_id, timing);
  HttpResponse response;
  if (const auto* error = std::get_if<ApiError>(&outcome)) {
    response = ErrorResponse(*error);
  } else {
    response = std::get<HttpResponse>(std::move(outcome));
  }
  response.headers.Set("Server-Timing", timing.Header());
  if (settings_.log_requests)
    SYSONE_INFO("%s %s %d, %llu questions, %llu tokens, queue %.1f ms, pass %.1f ms, total %.1f ms",
                request_id.c_str(), request.peer.c_str(), response.status,
                static_cast<unsigned long long>(timing.questions),
                static_cast<unsigned long long>(timing.input_tokens), Milliseconds(timing.queue_us),
                Milliseconds(timing.pass_us), Milliseconds(MonotonicUs() - timing.begin_us));
  return response;
}

std::variant<HttpResponse, ApiError> ArenaDecisionService::TryDecide(const HttpRequest& request,
                                                                     const std::string& request_id,
                                                                     Timing& timing) {
  auto parsed = ParseDecisionRequest(request.body, settings_.limits);
  if (const auto* problem = std::get_if<RequestProblem>(&parsed)) return ErrorFrom(*problem);
  const DecisionRequest& decision = std::get<DecisionRequest>(parsed);
  timing.questions = decision.questions.size();
  if (!Serves(decision.model)) {
    ApiError error = ErrorFrom(
        Status(Code::kNotFound, "model '" + Shown(decision.model) +
                                    "' is not served here; GET /v1/models lists what is"));
    error.param = "model";
    return error;
  }
  auto planned = strategy_->Plan(decision);
  if (const auto* problem = std::get_if<RequestProblem>(&planned)) return ErrorFrom(*problem);
  const DecisionJobPlan& plan = std::get<DecisionJobPlan>(planned);
  timing.planned_us = MonotonicUs() - timing.begin_us;
  timing.input_tokens = plan.input_tokens();
  arena_.metrics().Observe(Histogram::kTokenizeTime, static_cast<uint64_t>(timing.planned_us));

  const bool diagnostics = decision.diagnostics.value_or(settings_.diagnostics);
  const JobRequest job{plan,
                       diagnostics || settings_.confidence == ConfidenceRule::kVllm,
                       SaltHash(decision.cache_salt),
                       static_cast<int32_t>(std::clamp<int64_t>(
                           decision.priority, std::numeric_limits<int32_t>::min(),
                           std::numeric_limits<int32_t>::max())),
                       request.received_us + settings_.request_timeout_us,
                       request.client_gone};
  auto run = client_.Run(job);
  if (const auto* refusal = std::get_if<JobRefusal>(&run)) return FromRefusal(*refusal);
  const JobResult& result = std::get<JobResult>(run);
  timing.queue_us = result.queue_us;
  timing.pass_us = result.pass_us;

  auto scored = Score(decision, plan, result);
  if (auto* error = std::get_if<ApiError>(&scored)) return std::move(*error);
  Count(decision, plan, result);
  ResponseMeta meta;
  meta.id = DecisionId(request_id, 0);
  meta.created = time(nullptr);
  meta.model = settings_.served_names.front();
  meta.input_tokens = timing.input_tokens;
  meta.cached_tokens = result.cached_tokens;
  meta.diagnostics = diagnostics;
  meta.fields = settings_.fields;
  HttpResponse response;
  response.body = WriteDecisionResponse(decision, std::get<std::vector<Answer>>(scored), meta);
  return response;
}

std::variant<std::vector<Answer>, ApiError> ArenaDecisionService::Score(
    const DecisionRequest& decision, const DecisionJobPlan& plan, const JobResult& result) const {
  std::vector<Answer> answers;
  for (size_t i = 0; i < decision.questions.size(); ++i) {
    const QuestionResult& read = result.questions[i];
    const LabelReadout readout{read.label_logits, plan.questions[i].label_ids, read.full_head};
    auto answer = ScoreLabels(decision.questions[i].type, readout, settings_.confidence);
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

void ArenaDecisionService::Count(const DecisionRequest& decision, const DecisionJobPlan& plan,
                                 const JobResult& result) {
  Metrics metrics = arena_.metrics();
  for (const Question& question : decision.questions) {
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
  metrics.Add(Counter::kPromptTokens, plan.input_tokens());
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
