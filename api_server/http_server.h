// The HTTP/1.1 front of an API server. Bytes come in through one event loop that parks idle
// connections and collects whole requests under time and size limits; a pool thread is taken only
// while a request is handled. So thousands of idle or slow clients cost memory, never threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "api_server/connection_gate.h"
#include "api_server/http_types.h"
#include "base/status.h"

namespace sysone {

struct HttpLimits {
  size_t max_request_bytes = 8u << 20;   // body on the wire; above it 413 without reading on
  size_t max_inflated_bytes = 8u << 20;  // body after gzip; above it 413
  size_t max_buffered_bytes = 1u << 30;  // bodies of all connections together; above it 503
  size_t max_head_bytes = 32u << 10;     // request line and headers together; above it 431
  size_t max_target_bytes = 8u << 10;    // request target; above it 414
  size_t max_header_bytes = 8u << 10;    // one header field; above it 431
  size_t max_headers = 100;              // above it 431
  size_t max_connections = 4096;         // above it 503 with Retry-After, then close
  size_t threads = 256;                  // most requests handled at once; threads start when needed
  size_t max_queued_requests = 1024;     // waiting for a thread; above it 503 with Retry-After
  int64_t keep_alive_us = 75'000'000;    // a connection without a request is closed after this
  int64_t head_timeout_us = 10'000'000;  // first byte to the end of the head; then 408
  int64_t body_timeout_us = 30'000'000;  // end of the head to the end of the body; then 408
  int64_t write_timeout_us =
      30'000'000;                 // for a client that does not take its response; then closed
  int64_t linger_us = 2'000'000;  // reading on after an early error, so that the client sees it
  int64_t gate_patience_us =
      20'000;  // accept out of turn when the server whose turn it is does not
};

// A snapshot for /metrics.
struct HttpServerStats {
  size_t open_connections = 0;
  size_t requests_in_handlers = 0;
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
                                                   ConnectionGate* gate);
  // Stops at once: `client_gone` turns true for running handlers, waits for them, closes every
  // connection.
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
