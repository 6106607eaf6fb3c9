// A listening socket of the instance: clients', or that of other hosts' links. The router binds it, so that a port in use is known before anything is started
// and connections wait in one queue while an API server is replaced; the children that accept inherit it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace sysone {

class Listener {
 public:
  // `host` is an address or a name; port 0 takes any free one. kUnavailable when the port is in use. `flags` name the two in
  // messages.
  struct Flags {
    const char* host = "--host";
    const char* port = "--port";
  };
  static Result<Listener> Bind(const std::string& host, int port, const Flags& flags);
  static Result<Listener> Bind(const std::string& host, int port) {
    return Bind(host, port, Flags());
  }
  // No socket: an instance that is reached through another host, at `url`.
  static Listener None(std::string url) { return Listener(-1, 0, std::move(url)); }
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
