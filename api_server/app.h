// The application behind the HTTP server: paths, methods, keys, origins, request ids. What is
// decided, it leaves to the DecisionService. Knows neither sockets nor models.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api_server/auth.h"
#include "api_server/cors.h"
#include "api_server/decision_service.h"
#include "api_server/http_call.h"
#include "api_server/http_types.h"

namespace sysone {

// One answered request, for logs and counters.
struct Served {
  std::string_view
      route;  // "/v1/systemone", …; "other" for unknown paths, so that counters stay few
  std::string_view method;
  std::string_view peer;  // empty when not even the head of the request could be read
  std::string_view request_id;
  int status = 0;
  int64_t duration_us = 0;  // from the request's first byte; 0 when refused before its end
};

struct AppOptions {
  std::vector<std::string> api_keys;  // empty: no key is asked for
  Cors cors;
  std::function<void(const Served&)> observe = [](const Served&) {};  // any thread; must be quick
};

// Any thread may call every method.
class App {
 public:
  // `service` outlives the app.
  App(AppOptions options, DecisionService* service);

  // The server's two handlers. A decision is answered when it is made; everything else before Handle returns.
  void Handle(HttpCall call);
  HttpResponse HandleProblem(const HttpProblem& problem, const HttpRequest* head);

  // Whether handling this request is little work, short enough for an event loop.
  bool Quick(const HttpRequest& request) const;

  // From now on new decisions get 503 and /ready says no; what is in flight is not touched.
  void StartDraining() { draining_.store(true, std::memory_order_relaxed); }

 private:
  // The answer; nullopt: a decision is asked for, and nothing speaks against making it.
  std::optional<HttpResponse> Route(const HttpRequest& request) const;
  std::optional<HttpResponse> RefuseDecision(const HttpRequest& request) const;
  HttpResponse Health(bool ready) const;
  void Finish(const HttpRequest* request, const std::string& request_id, int64_t received_us,
              HttpResponse& response) const;

  const AppOptions options_;
  const KeyCheck keys_;
  DecisionService* const service_;
  std::atomic<bool> draining_{false};
};

}  // namespace sysone
