// SPDX-License-Identifier: Apache-2.0
#include "api_server/api_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <semaphore>
#include <sstream>

#include "api_server/accept_gate.h"
#include "api_server/app.h"
#include "api_server/arena_decision_service.h"
#include "api_server/chat_template.h"
#include "api_server/engine_client.h"
#include "api_server/http_server.h"
#include "api_server/next_token_strategy.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/model_len.h"
#include "model/catalogue.h"
#include "model/model_files.h"
#include "shm_arena/group_bell.h"
#include "shm_arena/heartbeat.h"
#include "shm_arena/router_watch.h"

namespace sysone {
namespace {

constexpr int64_t kAttachWaitUs = 10'000'000;

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(Code::kNotFound, "--chat-template: cannot read %s", path.c_str());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<std::unique_ptr<const NextTokenStrategy>> MakeStrategy(const ServeOptions& options,
                                                              const Arena& arena) {
  SYSONE_ASSIGN_OR_RETURN(ModelFrontEnd model, OpenModelFrontEnd(options.model_path));
  SYSONE_RETURN_IF_ERROR(arena.CheckIdentity({SysoneVersion(), model.fingerprint}));
  if (!options.chat_template.empty()) {
    SYSONE_ASSIGN_OR_RETURN(model.chat_template.text, ReadFile(options.chat_template));
  }
  if (model.chat_template.text.empty())
    return Error(Code::kUnsupported,
                 "the model has no chat template; give one with --chat-template FILE");
  SYSONE_ASSIGN_OR_RETURN(
      auto chat_template,
      ChatTemplate::Compile(model.chat_template.text, model.chat_template.special_tokens));
  NextTokenStrategy::Options strategy;
  SYSONE_ASSIGN_OR_RETURN(const int32_t max_model_len,
                          EffectiveMaxModelLen(options, model.config.max_positions));
  strategy.max_model_len = static_cast<uint32_t>(max_model_len);
  if (!options.default_chat_template_kwargs.empty()) {
    SYSONE_ASSIGN_OR_RETURN(strategy.default_kwargs,
                            Json::Parse(options.default_chat_template_kwargs));
  }
  return NextTokenStrategy::Create(model.tokenizer, chat_template, strategy);
}

DecisionSettings SettingsOf(const ServeOptions& options) {
  DecisionSettings settings;
  settings.served_names = options.served_model_names;
  settings.created = time(nullptr);
  settings.model_description = "A language model that answers typed decisions in one forward pass";
  settings.release_date = "1970-01-01";
  if (const auto known = FindInCatalogue(options.model)) {
    settings.model_description = known->description;
    settings.release_date = known->release_date;
  }
  settings.limits.max_questions = options.max_questions;
  settings.confidence =
      options.confidence == "vllm" ? ConfidenceRule::kVllm : ConfidenceRule::kTypesafe;
  settings.fields =
      options.response_fields == "typesafe" ? ResponseFields::kTypesafe : ResponseFields::kVllm;
  settings.diagnostics = options.diagnostics;
  settings.request_timeout_us = static_cast<int64_t>(options.request_timeout_s * 1e6);
  settings.log_requests = !options.disable_log_requests;
  // Hosts come and go; this one's groups have to be there, or one of others.
  settings.expected_groups = static_cast<uint32_t>(std::max(LocalGroups(options), 1));
  settings.expected_api_servers = static_cast<uint32_t>(options.api_server_count);
  return settings;
}

Result<AppOptions> AppOptionsOf(const ServeOptions& options, Arena& arena) {
  CorsOptions cors;
  cors.origins = options.allowed_origins;
  if (!options.allowed_methods.empty()) cors.methods = options.allowed_methods;
  if (!options.allowed_headers.empty()) cors.headers = options.allowed_headers;
  cors.credentials = options.allow_credentials;
  AppOptions app;
  app.api_keys = options.api_keys;
  SYSONE_ASSIGN_OR_RETURN(app.cors, Cors::Make(std::move(cors)));
  app.observe = [metrics = arena.metrics()](const Served& served) mutable {
    metrics.Add(CounterForHttpStatus(served.status));
    if (served.route == "/v1/systemone" && served.duration_us > 0)
      metrics.Observe(Histogram::kRequestLatency, static_cast<uint64_t>(served.duration_us));
  };
  return app;
}

HttpLimits HttpLimitsOf(const ServeOptions& options) {
  HttpLimits limits;
  limits.max_request_bytes = static_cast<size_t>(options.max_request_bytes);
  limits.max_inflated_bytes = limits.max_request_bytes;
  limits.max_connections = static_cast<size_t>(options.max_connections);
  return limits;
}

// Every connection is a descriptor, and the usual soft limit of 1024 is below what --max-connections may ask for.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Status RunApiServer(const ServeOptions& options) {
  RaiseDescriptorLimit();
  SYSONE_ASSIGN_OR_RETURN(Arena arena, Arena::Attach(options.instance_name, kAttachWaitUs));
  SYSONE_RETURN_IF_ERROR(
      arena.Register(ProcessRole::kApiServer, static_cast<uint32_t>(options.role_index)));
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  std::binary_semaphore asked_to_stop(0);
  const Heartbeat heartbeat(arena, [&] { asked_to_stop.release(); });
  arena.lease().SetPhase(ProcessPhase::kLoading);

  SYSONE_ASSIGN_OR_RETURN(auto strategy, MakeStrategy(options, arena));
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Doorbell> socket, Doorbell::Create(options.run_dir));
  const auto doorbell = MakeGroupDoorbell(arena, std::move(socket));
  SYSONE_ASSIGN_OR_RETURN(WakeSocket wake_socket, WakeSocket::Bind(options.run_dir, arena.self()));
  EngineClient client(arena, *doorbell, wake_socket,
                      {options.max_num_queued_reqs, options.max_num_queued_tokens},
                      options.enable_prefix_caching);
  ArenaDecisionService service(arena, client, std::move(strategy), SettingsOf(options));
  SYSONE_ASSIGN_OR_RETURN(AppOptions app_options, AppOptionsOf(options, arena));
  App app(std::move(app_options), &service);
  AcceptGate gate(arena);
  SYSONE_ASSIGN_OR_RETURN(
      const std::unique_ptr<HttpServer> server,
      HttpServer::Start(
          options.listen_fd, HttpLimitsOf(options),
          [&](HttpCall call) { app.Handle(std::move(call)); },
          [&](const HttpProblem& problem, const HttpRequest* head) {
            return app.HandleProblem(problem, head);
          },
          &gate, {[&](const HttpRequest& request) { return app.Quick(request); }, &client}));
  arena.lease().SetPhase(ProcessPhase::kReady);
  SYSONE_INFO("ready");

  asked_to_stop.acquire();
  arena.lease().SetPhase(ProcessPhase::kDraining);
  app.StartDraining();
  if (!server->Drain(MonotonicUs() + static_cast<int64_t>(options.shutdown_timeout_s * 1e6)))
    SYSONE_WARNING("requests were still unanswered after --shutdown-timeout %.0f s",
                   options.shutdown_timeout_s);
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return {};
}

}  // namespace sysone
