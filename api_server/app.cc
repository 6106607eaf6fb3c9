// SPDX-License-Identifier: Apache-2.0
#include "api_server/app.h"

#include <memory>
#include <optional>
#include <utility>

#include "api_server/errors.h"
#include "api_server/openapi.h"
#include "api_server/request_id.h"
#include "api_server/server_timing.h"
#include "base/clock.h"
#include "base/log.h"

namespace sysone {
namespace {

constexpr std::string_view kDecidePath = "/v1/systemone";
constexpr std::string_view kModelsPath = "/v1/models";
constexpr std::string_view kHealthPath = "/health";
constexpr std::string_view kReadyPath = "/ready";
constexpr std::string_view kMetricsPath = "/metrics";
constexpr std::string_view kOpenApiPath = "/openapi.json";
constexpr std::string_view kGetPaths[] = {kModelsPath, kHealthPath, kReadyPath, kMetricsPath,
                                          kOpenApiPath};

// The path when it is one of ours, else "other".
std::string_view RouteOf(std::string_view path) {
  if (path == kDecidePath) return kDecidePath;
  for (const std::string_view known : kGetPaths)
    if (path == known) return known;
  return "other";
}

HttpResponse MethodNotAllowed(const std::string& allow) {
  ApiError error{Code::kInvalidArgument, "this path takes " + allow + " only"};
  error.http_status = 405;
  HttpResponse response = ErrorResponse(error);
  response.headers.Set("Allow", allow);
  return response;
}

// One application/json in any case, with or without parameters.
bool IsJson(const HttpRequest& request) {
  const std::string* type = request.headers.Find("Content-Type");
  if (type == nullptr || request.headers.Count("Content-Type") != 1) return false;
  std::string_view media = std::string_view(*type).substr(0, type->find(';'));
  while (media.ends_with(' ') || media.ends_with('\t')) media.remove_suffix(1);
  return EqualsIgnoreCase(media, "application/json");
}

std::optional<HttpResponse> RefuseKey(KeyCheck::Verdict verdict) {
  switch (verdict) {
    case KeyCheck::Verdict::kPass:
      return std::nullopt;
    case KeyCheck::Verdict::kMissing:
      return ErrorResponse(
          {Code::kForbidden, "an API key is required: send it as 'Authorization: Bearer KEY'"});
    case KeyCheck::Verdict::kWrong:
      break;
  }
  HttpResponse response = ErrorResponse({Code::kUnauthorized, "the API key is wrong"});
  response.headers.Set("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace

App::App(AppOptions options, DecisionService* service)
    : options_(std::move(options)), keys_(options_.api_keys), service_(service) {}

void App::Handle(HttpCall call) {
  const auto shared = std::make_shared<HttpCall>(std::move(call));
  const HttpRequest& request = shared->request();
  const std::string request_id = RequestIdOf(request);
  const auto reply = [this, shared, request_id](HttpResponse response) {
    const HttpRequest& answered = shared->request();
    Finish(&answered, request_id, answered.received_us, response);
    shared->Reply(std::move(response));
  };
  if (auto response = Route(request)) return reply(*std::move(response));
  service_->Decide(request, request_id, [reply, &request](HttpResponse response) {
    const std::string* timing = response.headers.Find("Server-Timing");
    std::string timings = timing == nullptr ? "" : *timing;
    AppendServerTiming(timings, "total", MonotonicUs() - request.received_us);
    response.headers.Set("Server-Timing", std::move(timings));
    reply(std::move(response));
  });
}

bool App::Quick(const HttpRequest& request) const {
  return request.path != kDecidePath || request.method != "POST" || service_->Quick(request);
}

HttpResponse App::HandleProblem(const HttpProblem& problem, const HttpRequest* head) {
  // The key comes first: who has none does not learn what else is wrong.
  std::optional<HttpResponse> refused;
  if (head != nullptr) refused = RefuseKey(keys_.Check(*head));
  if (!refused) {
    ApiError error{Code::kMalformed, problem.message};
    error.http_status = problem.status;
    error.retry_after_s = problem.retry_after_s;
    refused = ErrorResponse(error);
    if (problem.status == 415) refused->headers.Set("Accept-Encoding", "gzip, identity");
  }
  Finish(head, RequestIdOf(head != nullptr ? *head : HttpRequest()), 0, *refused);
  return *std::move(refused);
}

std::optional<HttpResponse> App::Route(const HttpRequest& request) const {
  if (Cors::IsPreflight(request)) return options_.cors.AnswerPreflight(request);
  if (auto refused = RefuseKey(keys_.Check(request))) return refused;
  const std::string_view route = RouteOf(request.path);
  if (route == "other")
    return ErrorResponse(
        {Code::kNotFound, "there is nothing at this path; /openapi.json lists what there is"});
  if (route == kDecidePath) {
    if (request.method != "POST") return MethodNotAllowed("POST");
    return RefuseDecision(request);
  }
  if (request.method != "GET" && request.method != "HEAD") return MethodNotAllowed("GET, HEAD");
  if (route == kHealthPath || route == kReadyPath) return Health(route == kReadyPath);
  HttpResponse response;
  if (route == kModelsPath) {
    response.body = service_->ModelsJson();
  } else if (route == kMetricsPath) {
    response.body = service_->MetricsText();
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  } else {
    response.body = OpenApiJson();
  }
  return response;
}

std::optional<HttpResponse> App::RefuseDecision(const HttpRequest& request) const {
  if (!IsJson(request))
    return ErrorResponse(
        {Code::kMalformed, "Content-Type must be application/json", "Content-Type"});
  if (draining_.load(std::memory_order_relaxed))
    return ErrorResponse({Code::kUnavailable, "the server is shutting down; try again"});
  return std::nullopt;
}

HttpResponse App::Health(bool ready) const {
  const HealthState state = service_->Health();
  const bool draining = draining_.load(std::memory_order_relaxed);
  if (ready ? state.ready && !draining : state.healthy) {
    HttpResponse response;
    response.body = R"({"status": "ok"})";
    return response;
  }
  if (draining) return ErrorResponse({Code::kUnavailable, "the server is shutting down"});
  return ErrorResponse(
      {Code::kUnavailable, state.message.empty() ? "no worker can be reached" : state.message});
}

void App::Finish(const HttpRequest* request, const std::string& request_id, int64_t received_us,
                 HttpResponse& response) const {
  response.headers.Set("x-typesafe-request-id", request_id);
  response.headers.Set("X-Request-Id", request_id);
  response.headers.Set("X-Content-Type-Options", "nosniff");
  if (request != nullptr && !Cors::IsPreflight(*request))
    options_.cors.AddHeaders(*request, response);
  const std::string_view route = request == nullptr ? "other" : RouteOf(request->path);
  if (response.status == 500)
    SYSONE_ERROR("request %s to %s was answered with 500", request_id.c_str(),
                 std::string(route).c_str());
  options_.observe({.route = route,
                    .method = request == nullptr ? std::string_view() : request->method,
                    .peer = request == nullptr ? std::string_view() : request->peer,
                    .request_id = request_id,
                    .status = response.status,
                    .duration_us = received_us == 0 ? 0 : MonotonicUs() - received_us});
}

}  // namespace sysone
