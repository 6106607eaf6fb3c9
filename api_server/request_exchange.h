// From a collected request to the bytes of its response: content encoding, the handler, the codec.
// Runs on pool threads; problems are also answered by the event loop. Knows no socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api_server/http_codec.h"
#include "api_server/http_limits.h"
#include "api_server/http_types.h"
#include "api_server/request_reader.h"

namespace sysone {

struct ExchangeContext {
  std::string peer;
  int64_t received_us = 0;
  std::function<bool()> client_gone;
  std::function<bool()>
      closing;  // asked when the response is ready: is the connection to end after it?
};

class RequestExchange {
 public:
  // `limits` outlives the object.
  RequestExchange(const HttpLimits& limits, HttpHandler handler,
                  HttpProblemHandler problem_handler);

  // Answers the complete request in `reader`, whose head and body it uses up. `keep_alive` says how
  // the response leaves the connection. Any thread with a codec of its own.
  std::string Answer(HttpCodec& codec, RequestReader& reader, const ExchangeContext& context,
                     bool& keep_alive) const;

  // The response to a request that does not reach the handler and ends its connection; `head` may
  // be null.
  std::string Refuse(HttpCodec& codec, const HttpProblem& problem, const HttpHead* head,
                     const std::string& peer) const;

 private:
  HttpResponse Handle(HttpRequest& request) const;

  const HttpLimits& limits_;
  const HttpHandler handler_;
  const HttpProblemHandler problem_handler_;
};

}  // namespace sysone
