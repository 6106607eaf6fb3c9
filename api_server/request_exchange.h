// From a collected request to a call of the handler: target, content encoding, and problems on the way. Knows no socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "api_server/http_call.h"
#include "api_server/http_head.h"
#include "api_server/http_limits.h"
#include "api_server/http_types.h"

namespace sysone {

// Any thread.
class RequestExchange {
 public:
  // `limits` outlives the object.
  RequestExchange(const HttpLimits& limits, HttpHandler handler,
                  HttpProblemHandler problem_handler);

  // The request that `head` begins, without body; takes the head's headers.
  static HttpRequest RequestOf(HttpHead& head, const std::string& peer);

  // Undoes the body's content encoding and hands the call to the handler. A handler that throws drops its call.
  void Serve(HttpCall call) const;

  // The response to a request that does not reach the handler; null when its head is not known.
  HttpResponse Refusal(const HttpProblem& problem, const HttpRequest* request) const {
    return problem_handler_(problem, request);
  }

 private:
  const HttpLimits& limits_;
  const HttpHandler handler_;
  const HttpProblemHandler problem_handler_;
};

}  // namespace sysone
