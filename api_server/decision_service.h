// What the HTTP application needs from the part that decides. Implemented by the API server's
// decision path and by fakes in tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "api_server/http_types.h"

namespace sysone {

struct HealthState {
  bool healthy = false;  // the process lives and a worker group is reachable
  bool ready = false;    // all that was asked for is up
  std::string
      message;  // for a person: what is missing; empty when ready. Nothing of the machine's inside.
};

// Every method: any thread, several at once.
class DecisionService {
 public:
  virtual ~DecisionService() = default;

  using Done = std::function<void(HttpResponse)>;

  // Answers POST /v1/systemone from the body's JSON on: key, method, size, encoding and content
  // type have been checked. `request_id` is non-empty, header-safe, and part of the answer's `id`.
  // Calls `done` exactly once, before it returns or later, on any thread; errors are responses too
  // (ErrorResponse in errors.h). The caller adds the request id headers and CORS, and keeps
  // `request` until then.
  virtual void Decide(const HttpRequest& request, const std::string& request_id, Done done) = 0;
  // Whether Decide returns soon enough for an event loop's thread.
  virtual bool Quick(const HttpRequest& request) const = 0;

  virtual std::string ModelsJson() = 0;  // body of GET /v1/models
  virtual HealthState Health() = 0;
  virtual std::string MetricsText() = 0;  // Prometheus text format
};

}  // namespace sysone
