// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace sysone {
namespace {

// One wait for the gate: short, so that a stop or an empty backlog is seen soon.
constexpr int64_t kGateStepUs = 1000;
// Pause when the process or the machine is out of descriptors; connections wait in the backlog
// meanwhile.
constexpr int kExhaustedPauseMs = 50;

std::string PeerName(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return Format("%s:%d", text, ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    return Format("[%s]:%d", text, ntohs(v6.sin6_port));
  }
  return "local";
}

}  // namespace

HttpAcceptor::HttpAcceptor(int listen_fd, int64_t gate_patience_us, ConnectionGate* gate, Take take)
    : listen_fd_(listen_fd),
      gate_patience_us_(gate_patience_us),
      gate_(gate),
      take_(std::move(take)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  SYSONE_CHECK(stop_, "eventfd: %s", std::strerror(errno));
  thread_ = std::thread([this] { Run(); });
}

void HttpAcceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  SYSONE_CHECK(write(stop_.get(), &one, sizeof one) == sizeof one, "eventfd: %s",
               std::strerror(errno));
  thread_.join();
}

void HttpAcceptor::Run() {
  while (WaitForConnection(-1) || !stopped_) {
    if (AwaitTurn() && !AcceptOne()) return;
  }
}

// True when a connection waits. Notes in stopped_ when the acceptor is to end.
bool HttpAcceptor::WaitForConnection(int timeout_ms) {
  pollfd fds[] = {{listen_fd_, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  const int count = poll(fds, 2, timeout_ms);
  SYSONE_CHECK(count >= 0 || errno == EINTR, "poll: %s", std::strerror(errno));
  stopped_ = count > 0 && fds[1].revents != 0;
  return !stopped_ && count > 0 && fds[0].revents != 0;
}

// True when this process should accept the connection that waits; false when somebody else took it
// meanwhile.
bool HttpAcceptor::AwaitTurn() {
  const int64_t give_up_us = MonotonicUs() + gate_patience_us_;
  while (!gate_->MyTurn()) {
    const int64_t left_us = give_up_us - MonotonicUs();
    // The process whose turn it is may hang or have died just now: no client waits for that.
    if (left_us <= 0) return true;
    gate_->WaitForChange(std::min(left_us, kGateStepUs));
    if (!WaitForConnection(0)) return false;
  }
  return true;
}

// False when the listening socket can give no more connections at all.
bool HttpAcceptor::AcceptOne() {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  UniqueFd socket(accept4(listen_fd_, reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) {
    switch (errno) {
      case EMFILE:
      case ENFILE:
      case ENOBUFS:
      case ENOMEM: {
        SYSONE_WARNING("cannot accept a connection: %s; raise the limit of open files",
                       std::strerror(errno));
        pollfd stop{stop_.get(), POLLIN, 0};
        poll(&stop, 1, kExhaustedPauseMs);
        return true;
      }
      case EBADF:
      case EINVAL:
      case ENOTSOCK:
        SYSONE_ERROR("the listening socket is gone: %s", std::strerror(errno));
        return false;
      default:
        return true;  // another process was faster, or the client gave up in the backlog
    }
  }
  const int on = 1;
  // Fails on Unix sockets, which need no such thing.
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  take_(std::move(socket), PeerName(address));
  return true;
}

}  // namespace sysone
