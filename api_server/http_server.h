// The HTTP/1.1 front of an API server. Bytes come in through one event loop that parks idle
// connections and collects whole requests under time and size limits. It handles requests itself that
// are little work; others go to a pool thread. Where answers come later (LoopSource), the loop waits for
// them, too. So thousands of idle, slow or waiting clients cost memory, never threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api_server/connection_gate.h"
#include "api_server/http_call.h"
#include "api_server/http_limits.h"
#include "api_server/http_types.h"
#include "api_server/loop_source.h"
#include "base/status.h"

namespace sysone {

// A snapshot for /metrics.
struct HttpServerStats {
  size_t open_connections = 0;
  size_t requests_in_handlers = 0;  // begun and not answered
  size_t requests_queued = 0;
  uint64_t connections_accepted = 0;
  uint64_t connections_refused = 0;  // over the cap
  uint64_t requests_received = 0;    // whole requests
  uint64_t requests_refused = 0;     // answered with a problem instead of reaching the handler
};

class HttpServer {
 public:
  // Serves on `listen_fd`, a listening TCP or Unix socket that other processes may share; it is
  // borrowed, switched to non-blocking and never closed. `gate` outlives the server. Fails with
  // kUnavailable when the kernel refuses.
  static Result<std::unique_ptr<HttpServer>> Start(int listen_fd, const HttpLimits& limits,
                                                   HttpHandler handler,
                                                   HttpProblemHandler problem_handler,
                                                   ConnectionGate* gate, LoopWork work = {});
  // Stops at once: `client_gone` turns true for calls that are not answered, waits until they are, closes every connection.
  ~HttpServer();

  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Accepts no more, closes idle connections, lets requests that have begun to arrive finish and
  // marks their responses `Connection: close`. True when every connection is closed, false when
  // `deadline_us` (MonotonicUs) came first. Any thread; may be called again.
  bool Drain(int64_t deadline_us);

  HttpServerStats stats() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sysone
