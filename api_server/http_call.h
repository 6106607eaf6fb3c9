// One request on its way to its answer: whoever holds the call answers it, now or later, from any thread. A call that is
// dropped unanswered answers itself with 500, so no client waits for ever.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "api_server/http_types.h"

namespace sysone {

// Movable; one holder at a time.
class HttpCall {
 public:
  // Called exactly once, with the request; nullopt: the holder dropped the call. Any thread.
  using Send = std::function<void(const HttpRequest&, std::optional<HttpResponse>)>;

  HttpCall(HttpRequest request, Send send) : request_(std::move(request)), send_(std::move(send)) {}
  HttpCall(HttpCall&& other) noexcept
      : request_(std::move(other.request_)), send_(std::exchange(other.send_, nullptr)) {}
  HttpCall& operator=(HttpCall&&) = delete;
  ~HttpCall() {
    if (send_) send_(request_, std::nullopt);
  }

  const HttpRequest& request() const { return request_; }
  HttpRequest& request() { return request_; }

  // Once. The request stays until the call is gone, but its `client_gone` must not be asked any more.
  void Reply(HttpResponse response) {
    std::exchange(send_, nullptr)(request_, std::move(response));
  }

 private:
  HttpRequest request_;
  Send send_;
};

// Gets every whole request. On a pool thread it may block; on the event loop's thread (ServerWork::quick) it must not, nor
// take long.
using HttpHandler = std::function<void(HttpCall)>;

// A handler that answers before it returns.
inline HttpHandler Blocking(std::function<HttpResponse(const HttpRequest&)> answer) {
  return [answer = std::move(answer)](HttpCall call) { call.Reply(answer(call.request())); };
}

}  // namespace sysone
