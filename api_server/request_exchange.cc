// SPDX-License-Identifier: Apache-2.0
#include "api_server/request_exchange.h"

#include <exception>
#include <optional>

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

HttpRequest RequestOf(const HttpHead& head, std::string path, std::string query,
                      const std::string& peer) {
  HttpRequest request;
  request.method = head.method;
  request.path = std::move(path);
  request.query = std::move(query);
  request.headers = head.headers;
  request.peer = peer;
  return request;
}

}  // namespace

RequestExchange::RequestExchange(const HttpLimits& limits, HttpHandler handler,
                                 HttpProblemHandler problem_handler)
    : limits_(limits), handler_(std::move(handler)), problem_handler_(std::move(problem_handler)) {}

std::string RequestExchange::Answer(HttpCodec& codec, RequestReader& reader,
                                    const ExchangeContext& context, bool& keep_alive) const {
  const HttpHead& head = reader.head();
  return codec.Exchange(head, [&](std::string path, std::string query) {
    HttpRequest request = RequestOf(head, std::move(path), std::move(query), context.peer);
    request.body = std::move(reader.body());
    request.received_us = context.received_us;
    request.client_gone = context.client_gone;
    HttpCodec::Answer answer{Handle(request), true};
    keep_alive = answer.keep_alive = head.keep_alive && !context.closing();
    return answer;
  });
}

std::string RequestExchange::Refuse(HttpCodec& codec, const HttpProblem& problem,
                                    const HttpHead* head, const std::string& peer) const {
  HttpHead unknown;
  unknown.method = "GET";
  unknown.target = "/";
  return codec.Exchange(
      head != nullptr ? *head : unknown, [&](std::string path, std::string query) {
        if (head == nullptr) return HttpCodec::Answer{problem_handler_(problem, nullptr), false};
        const HttpRequest request = RequestOf(*head, std::move(path), std::move(query), peer);
        return HttpCodec::Answer{problem_handler_(problem, &request), false};
      });
}

HttpResponse RequestExchange::Handle(HttpRequest& request) const {
  if (const auto problem = Decode(request, limits_.max_inflated_bytes))
    return problem_handler_(*problem, &request);
  // A request that cannot be served for want of memory or the like still gets its one answer.
  try {
    return handler_(request);
  } catch (const std::exception& error) {
    SYSONE_ERROR("the handler of %s %s threw: %s", request.method.c_str(), request.path.c_str(),
                 error.what());
  }
  return problem_handler_({500, "the server failed to handle the request"}, &request);
}

}  // namespace sysone
