// A raw HTTP client for tests: sends the bytes it is told to, reads responses with a deadline.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "api_server/http_types.h"
#include "api_server/unique_fd.h"
#include "base/clock.h"

namespace sysone {

// A listening socket on a free loopback port.
struct Listener {
  UniqueFd socket;
  uint16_t port = 0;
};
Listener ListenOnLoopback();

struct ClientResponse {
  int status = 0;  // 0: the connection ended, or nothing came in time
  std::string reason;
  HttpHeaders headers;
  std::string body;

  std::string Header(std::string_view name) const {
    const std::string* value = headers.Find(name);
    return value == nullptr ? "" : *value;
  }
};

class TestClient {
 public:
  explicit TestClient(uint16_t port);

  // Sends everything; false when the connection breaks.
  bool Send(std::string_view bytes);
  // Reads one response; `head_request`: without a body whatever Content-Length says.
  ClientResponse Read(bool head_request = false);
  ClientResponse Ask(std::string_view bytes) {
    Send(bytes);
    return Read();
  }
  // True when the server ends the connection, with nothing more to read.
  bool AtEnd();
  void HalfClose();
  int fd() const { return socket_.get(); }

 private:
  bool Fill();

  UniqueFd socket_;
  std::string buffer_;
};

// "GET / HTTP/1.1" and "POST / HTTP/1.1" with a Host header.
std::string Get(std::string_view path, std::string_view extra_headers = "");
std::string Post(std::string_view path, std::string_view body, std::string_view extra_headers = "");

// Waits until `condition` holds, looking often; false after ten seconds.
template <class Condition>
bool Eventually(Condition condition) {
  const int64_t deadline_us = MonotonicUs() + 10'000'000;
  while (!condition()) {
    if (MonotonicUs() > deadline_us) return false;
    sched_yield();
  }
  return true;
}

}  // namespace sysone
