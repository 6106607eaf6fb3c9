// The application behind the HTTP server: paths, methods, keys, origins, request ids. What is
// decided, it leaves to the DecisionService. Knows neither sockets nor models.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api_server/auth.h"
#include "api_server/cors.h"
#include "api_server/decision_service.h"
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

  // The server's two handlers.
  HttpResponse Handle(const HttpRequest& request);
  HttpResponse HandleProblem(const HttpProblem& problem, const HttpRequest* head);

  // From now on new decisions get 503 and /ready says no; what is in flight is not touched.
  void StartDraining() { draining_.store(true, std::memory_order_relaxed); }

 private:
  HttpResponse Route(const HttpRequest& request, const std::string& request_id);
  HttpResponse Decide(const HttpRequest& request, const std::string& request_id);
  HttpResponse Health(bool ready) const;
  void Finish(const HttpRequest* request, const std::string& request_id, int64_t received_us,
              HttpResponse& response) const;

  const AppOptions options_;
  const KeyCheck keys_;
  DecisionService* const service_;
  std::atomic<bool> draining_{false};
};

}  // namespace sysone
