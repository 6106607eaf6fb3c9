// SPDX-License-Identifier: Apache-2.0
#include "api_server/request_exchange.h"

#include <exception>
#include <optional>

#include "api_server/http_codec.h"
#include "api_server/inflate.h"
#include "base/log.h"

namespace sysone {
namespace {

// Undoes the Content-Encoding of `request.body` in place.
std::optional<HttpProblem> Decode(HttpRequest& request, size_t max_inflated_bytes) {
  const std::string* encoding = request.headers.Find("Content-Encoding");
  if (encoding == nullptr || encoding->empty() || EqualsIgnoreCase(*encoding, "identity")) {
    if (request.headers.Count("Content-Encoding") <= 1) return std::nullopt;
  } else if (request.headers.Count("Content-Encoding") == 1 &&
             (EqualsIgnoreCase(*encoding, "gzip") || EqualsIgnoreCase(*encoding, "x-gzip"))) {
    if (request.body.empty()) return std::nullopt;
    std::string plain;
    const Status status = Gunzip(request.body, max_inflated_bytes, plain);
    if (!status.ok())
      return HttpProblem{status.code() == Code::kTooLarge ? 413 : 400, status.message()};
    request.body = std::move(plain);
    return std::nullopt;
  }
  return HttpProblem{415, "Content-Encoding must be gzip or identity"};
}

}  // namespace

RequestExchange::RequestExchange(const HttpLimits& limits, HttpHandler handler,
                                 HttpProblemHandler problem_handler)
    : limits_(limits), handler_(std::move(handler)), problem_handler_(std::move(problem_handler)) {}

HttpRequest RequestExchange::RequestOf(HttpHead& head, const std::string& peer) {
  HttpRequest request;
  DecodeTarget(head.target, request.path, request.query);
  request.method = head.method;
  request.headers = std::move(head.headers);
  request.peer = peer;
  return request;
}

void RequestExchange::Serve(HttpCall call) const {
  if (const auto problem = Decode(call.request(), limits_.max_inflated_bytes))
    return call.Reply(problem_handler_(*problem, &call.request()));
  // A request that cannot be served for want of memory or the like still gets its one answer.
  try {
    handler_(std::move(call));
  } catch (const std::exception& error) {
    SYSONE_ERROR("the handler of a request threw: %s", error.what());
  }
}

}  // namespace sysone
