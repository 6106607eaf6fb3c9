// SPDX-License-Identifier: Apache-2.0
#include "api_server/cors.h"

#include <algorithm>
#include <string_view>

#include "api_server/errors.h"
#include "api_server/http_head.h"

namespace sysone {
namespace {

// How long a browser may remember a preflight's answer: ten minutes, as vLLM's middleware says.
constexpr const char* kMaxAgeSeconds = "600";
constexpr const char* kExposed = "x-typesafe-request-id, X-Request-Id, Server-Timing, Retry-After";

bool Contains(const std::vector<std::string>& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool ContainsIgnoreCase(const std::vector<std::string>& list, std::string_view value) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& item) { return EqualsIgnoreCase(item, value); });
}

bool IsToken(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

// "scheme://host" or "scheme://host:port", as browsers send it; "null" is what sandboxed pages
// send.
bool IsOrigin(const std::string& text) {
  if (text == "*" || text == "null") return true;
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos || scheme == 0 || scheme + 3 == text.size()) return false;
  return std::all_of(text.begin() + static_cast<ptrdiff_t>(scheme) + 3, text.end(), [](char c) {
    return c > ' ' && c < '\x7f' && c != '/' && c != '?' && c != '#' && c != ',';
  });
}

std::string Join(const std::vector<std::string>& list) {
  std::string joined;
  for (const std::string& item : list) joined += (joined.empty() ? "" : ", ") + item;
  return joined;
}

HttpResponse Denied(const std::string& message) {
  return ErrorResponse({Code::kForbidden, message});
}

}  // namespace

Result<Cors> Cors::Make(CorsOptions options) {
  for (const std::string& origin : options.origins)
    if (!IsOrigin(origin))
      return Error(Code::kInvalidArgument,
                   "--allowed-origins: '%s' is no origin; write it as https://host[:port], without "
                   "a path, or *",
                   origin.c_str());
  for (const std::string& method : options.methods)
    if (!IsToken(method))
      return Error(Code::kInvalidArgument, "--allowed-methods: '%s' is no method", method.c_str());
  for (const std::string& header : options.headers)
    if (!IsToken(header))
      return Error(Code::kInvalidArgument, "--allowed-headers: '%s' is no header name",
                   header.c_str());
  Cors cors;
  cors.any_origin_ = Contains(options.origins, "*");
  if (cors.any_origin_ && options.credentials)
    return Error(Code::kInvalidArgument,
                 "--allow-credentials does not go with the origin \"*\"; name the origins in "
                 "--allowed-origins");
  if (Contains(options.methods, "*")) options.methods = {"GET", "HEAD", "POST"};
  cors.any_header_ = Contains(options.headers, "*");
  cors.options_ = std::move(options);
  return cors;
}

bool Cors::IsPreflight(const HttpRequest& request) {
  return request.method == "OPTIONS" && request.headers.Find("Origin") != nullptr &&
         request.headers.Find("Access-Control-Request-Method") != nullptr;
}

HttpResponse Cors::AnswerPreflight(const HttpRequest& request) const {
  const std::string& origin = *request.headers.Find("Origin");
  if (!AllowsOrigin(origin)) return Denied("this origin is not allowed");
  if (!Contains(options_.methods, *request.headers.Find("Access-Control-Request-Method")))
    return Denied("this method is not allowed from other origins");
  HttpResponse response;
  response.status = 204;
  const std::string* asked = request.headers.Find("Access-Control-Request-Headers");
  std::string headers = any_header_ && asked != nullptr ? *asked : Join(options_.headers);
  if (asked != nullptr && !any_header_) {
    std::string_view rest = *asked;
    while (!rest.empty()) {
      std::string_view name = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      while (name.starts_with(' ')) name.remove_prefix(1);
      while (name.ends_with(' ')) name.remove_suffix(1);
      if (!name.empty() && !ContainsIgnoreCase(options_.headers, name))
        return Denied("a header of the request is not allowed from other origins");
    }
  }
  AllowOrigin(origin, response);
  response.headers.Set("Access-Control-Allow-Methods", Join(options_.methods));
  response.headers.Set("Access-Control-Allow-Headers", std::move(headers));
  response.headers.Set("Access-Control-Max-Age", kMaxAgeSeconds);
  return response;
}

void Cors::AddHeaders(const HttpRequest& request, HttpResponse& response) const {
  if (options_.origins.empty()) return;
  const std::string* origin = request.headers.Find("Origin");
  if (origin != nullptr && AllowsOrigin(*origin)) {
    AllowOrigin(*origin, response);
    response.headers.Set("Access-Control-Expose-Headers", kExposed);
  } else if (!any_origin_) {
    response.headers.Set("Vary", "Origin");  // a cache must not hand this answer to a listed origin
  }
}

bool Cors::AllowsOrigin(const std::string& origin) const {
  return any_origin_ || Contains(options_.origins, origin);
}

void Cors::AllowOrigin(const std::string& origin, HttpResponse& response) const {
  response.headers.Set("Access-Control-Allow-Origin", any_origin_ ? "*" : origin);
  if (!any_origin_) response.headers.Set("Vary", "Origin");
  if (options_.credentials) response.headers.Set("Access-Control-Allow-Credentials", "true");
}

}  // namespace sysone
