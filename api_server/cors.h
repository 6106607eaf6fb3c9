// Cross-origin rules (CORS). Closed unless origins are listed: browsers then keep other sites'
// pages away from the server. Pure: requests in, headers out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api_server/http_types.h"
#include "base/status.h"

namespace sysone {

struct CorsOptions {
  std::vector<std::string> origins;  // "https://app.example", or "*" for any; empty: closed
  std::vector<std::string> methods = {"GET", "POST"};  // "*": all that we serve
  std::vector<std::string> headers = {"Content-Type",
                                      "Authorization"};  // "*": whatever is asked for
  bool credentials = false;                              // not together with the origin "*"
};

// Immutable; any thread.
class Cors {
 public:
  Cors() = default;  // closed
  // kInvalidArgument, naming the flag, when "*" meets credentials or a value is no origin, method
  // or header name.
  static Result<Cors> Make(CorsOptions options);

  // A browser's question before the real request.
  static bool IsPreflight(const HttpRequest& request);
  // 204 with what is allowed, or 403 that says what is not.
  HttpResponse AnswerPreflight(const HttpRequest& request) const;
  // Lets the page that sent `request` read `response`, if its origin is listed.
  void AddHeaders(const HttpRequest& request, HttpResponse& response) const;

 private:
  bool AllowsOrigin(const std::string& origin) const;
  void AllowOrigin(const std::string& origin, HttpResponse& response) const;

  CorsOptions options_;
  bool any_origin_ = false;
  bool any_header_ = false;
};

}  // namespace sysone
