// SPDX-License-Identifier: Apache-2.0
#include "api_server/errors.h"

#include <algorithm>

#include "base/json.h"

namespace sysone {
namespace {

struct StatusNames {
  int status;
  const char* detail_type;  // TypeSafe's `detail.error_type`
  const char* error_type;   // `error.type`, named like OpenAI's and vLLM's exceptions
};

// TypeSafe answers a missing key (403) and a wrong one (401) with the same type.
constexpr StatusNames kNames[] = {
    {400, "api_usage_error", "BadRequestError"},
    {401, "authentication_error", "AuthenticationError"},
    {403, "authentication_error", "PermissionDeniedError"},
    {404, "not_found", "NotFoundError"},
    {405, "method_not_allowed", "MethodNotAllowedError"},
    {408, "request_timeout", "RequestTimeoutError"},
    {413, "request_too_large", "RequestTooLargeError"},
    {414, "request_too_large", "RequestTooLargeError"},
    {415, "unsupported_encoding", "UnsupportedEncodingError"},
    {422, "validation_error", "UnprocessableEntityError"},
    {429, "rate_limit_error", "RateLimitError"},
    {431, "request_too_large", "RequestTooLargeError"},
    {500, "internal_error", "InternalServerError"},
    {501, "not_implemented", "NotImplementedError"},
    {503, "unavailable", "ServiceUnavailableError"},
    {504, "deadline_exceeded", "DeadlineExceededError"},
};

const StatusNames& NamesOf(int status) {
  for (const StatusNames& names : kNames)
    if (names.status == status) return names;
  return kNames[0];
}

// "questions.team.criteria": the issue's place without the leading "body".
std::string ParamOf(const ValidationIssue& issue) {
  std::string param;
  for (size_t i = 1; i < issue.loc.size(); ++i) {
    if (i > 1) param += '.';
    const auto* key = std::get_if<std::string>(&issue.loc[i]);
    param += key != nullptr ? *key : std::to_string(std::get<int64_t>(issue.loc[i]));
  }
  return param;
}

Json IssueJson(const ValidationIssue& issue) {
  std::vector<Json> loc;
  for (const ValidationIssue::LocPart& part : issue.loc) {
    const auto* key = std::get_if<std::string>(&part);
    loc.push_back(key != nullptr ? Json::String(*key)
                                 : Json::Number(std::to_string(std::get<int64_t>(part))));
  }
  return Json::Object({{"loc", Json::Array(std::move(loc))},
                       {"msg", Json::String(issue.msg)},
                       {"type", Json::String(issue.type)}});
}

// A 422 has a list even when nobody named the place: clients parse it as one.
Json DetailJson(const ApiError& error, int status, const std::string& message) {
  if (status != 422)
    return Json::Object({{"error_type", Json::String(NamesOf(status).detail_type)},
                         {"message", Json::String(message)}});
  if (error.issues.empty())
    return Json::Array({IssueJson({{std::string("body")}, message, "value_error"})});
  std::vector<Json> list;
  for (const ValidationIssue& issue : error.issues) {
    if (list.size() == kMaxListedIssues) break;
    list.push_back(IssueJson(issue));
  }
  return Json::Array(std::move(list));
}

}  // namespace

int HttpStatusOf(Code code) {
  switch (code) {
    case Code::kMalformed:
      return 400;
    case Code::kUnauthorized:
      return 401;
    case Code::kForbidden:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kTooLarge:
      return 413;
    case Code::kInvalidArgument:
      return 422;
    case Code::kRateLimited:
      return 429;
    case Code::kUnimplemented:
      return 501;
    // Nobody reads the answer to a cancelled request; a proxy that logs it should not count a
    // fault.
    case Code::kCancelled:
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kOk:
    case Code::kInternal:
    case Code::kUnsupported:
    case Code::kCorrupt:
    case Code::kOutOfMemory:
      return 500;
  }
  return 500;
}

ApiError ErrorFrom(const Status& status, int retry_after_s) {
  ApiError error{status.code(), status.message()};
  error.retry_after_s = retry_after_s;
  if (HttpStatusOf(error.code) == 500)
    error.message = "internal error; the server's log has the details under this request id";
  return error;
}

ApiError ErrorFrom(RequestProblem problem) {
  ApiError error = ErrorFrom(problem.status);
  error.issues = std::move(problem.issues);
  return error;
}

HttpResponse ErrorResponse(const ApiError& error) {
  const int status = error.http_status > 0 ? error.http_status : HttpStatusOf(error.code);
  const std::string message =
      error.message.empty() && !error.issues.empty() ? error.issues[0].msg : error.message;
  const std::string param =
      error.param.empty() && !error.issues.empty() ? ParamOf(error.issues[0]) : error.param;
  HttpResponse response;
  response.status = status;
  response.body =
      Json::Object({{"detail", DetailJson(error, status, message)},
                    {"error", Json::Object({{"message", Json::String(message)},
                                            {"type", Json::String(NamesOf(status).error_type)},
                                            {"param", param.empty() ? Json() : Json::String(param)},
                                            {"code", Json::Number(std::to_string(status))}})}})
          .Dump();
  if (error.retry_after_s > 0 || status == 429 || status == 503)
    response.headers.Set("Retry-After", std::to_string(std::max(1, error.retry_after_s)));
  return response;
}

}  // namespace sysone
