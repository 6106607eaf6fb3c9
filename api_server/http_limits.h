// Every bound of the HTTP layer in one place. Tests shrink them; flags set some.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace sysone {

struct HttpLimits {
  // Sizes of one request, in bytes.
  size_t max_request_bytes = 8u << 20;   // body as sent (chunk framing not counted); above it 413
  size_t max_inflated_bytes = 8u << 20;  // body after gzip; above it 413
  size_t max_head_bytes = 32u << 10;     // request line and headers together; above it 431
  size_t max_target_bytes = 8u << 10;    // request target; above it 414
  size_t max_header_bytes = 8u << 10;    // one header field; above it 431
  size_t max_headers = 100;              // above it 431

  // What all clients together may hold.
  size_t max_connections = 4096;         // above it 503 with Retry-After, then close
  size_t max_buffered_bytes = 1u << 30;  // bytes of requests that are still arriving; above it 503
  size_t threads = 256;                  // requests handled at once; threads start when needed
  size_t max_queued_requests = 1024;     // waiting for a thread; above it 503 with Retry-After

  // Patience, in microseconds.
  int64_t keep_alive_us = 75'000'000;     // a connection without a request is closed after this
  int64_t head_timeout_us = 10'000'000;   // first byte to the end of the head; then 408
  int64_t body_timeout_us = 30'000'000;   // end of the head to the end of the body; then 408
  int64_t write_timeout_us = 30'000'000;  // a client that does not take its response is dropped
  int64_t linger_us = 2'000'000;          // reading on after the last response, so that it is seen
  int64_t gate_patience_us = 20'000;      // then a connection is accepted out of turn
};

}  // namespace sysone
