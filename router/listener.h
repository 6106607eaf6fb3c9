// The one listening socket of the instance. The router binds it, so that a port in use is known before anything is started
// and connections wait in one queue while an API server is replaced; the API servers inherit it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace sysone {

class Listener {
 public:
  // `host` is an address or a name; port 0 takes any free one. kUnavailable when the port is in use.
  static Result<Listener> Bind(const std::string& host, int port);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int fd() const { return fd_; }  // close-on-exec, non-blocking
  int port() const { return port_; }
  // "http://127.0.0.1:8000": where this machine reaches it.
  const std::string& url() const { return url_; }

 private:
  Listener(int fd, int port, std::string url) : fd_(fd), port_(port), url_(std::move(url)) {}
  int fd_;
  int port_;
  std::string url_;
};

}  // namespace sysone
