// SPDX-License-Identifier: Apache-2.0
#include "router/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"

namespace sysone {
namespace {

// Connections that may wait for an accept; the kernel caps it at net.core.somaxconn.
constexpr int kBacklog = 4096;

std::string UrlOf(const sockaddr_storage& address, int port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) return Format("http://[::1]:%d", port);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return Format("http://[%s]:%d", text, port);
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) return Format("http://127.0.0.1:%d", port);
  inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  return Format("http://%s:%d", text, port);
}

}  // namespace

Result<Listener> Listener::Bind(const std::string& host, int port, const Flags& flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0)
    return Error(Code::kInvalidArgument, "%s: cannot resolve '%s': %s", flags.host, host.c_str(),
                 gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);

  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Error(Code::kInternal, "cannot make a socket: %s", strerror(errno));
  Listener listener(fd, port, "");
  // SO_REUSEADDR only passes over connections that linger after a restart. Without SO_REUSEPORT a second listener, ours or
  // a foreign one, makes bind fail instead of sharing the port's traffic without a word.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, kBacklog) != 0) {
    if (errno == EADDRINUSE)
      return Error(Code::kUnavailable,
                   "port %d on %s is in use; choose another with %s, or 0 for any free one", port,
                   host.c_str(), flags.port);
    return Error(Code::kInvalidArgument, "cannot listen on %s port %d: %s", host.c_str(), port,
                 strerror(errno));
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  // sin_port and sin6_port lie at the same place.
  listener.port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  listener.url_ = UrlOf(bound, listener.port_);
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : fd_(other.fd_), port_(other.port_), url_(std::move(other.url_)) {
  other.fd_ = -1;
}

Listener::~Listener() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace sysone
