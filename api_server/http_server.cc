// SPDX-License-Identifier: Apache-2.0
#include "api_server/http_server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "api_server/http_acceptor.h"
#include "api_server/http_loop.h"
#include "base/check.h"

namespace sysone {

class HttpServer::Impl {
 public:
  Impl(int listen_fd, const HttpLimits& limits, HttpHandler handler,
       HttpProblemHandler problem_handler, ConnectionGate* gate, LoopWork work)
      : limits_(limits),
        loop_(limits_, std::move(handler), std::move(problem_handler), gate, std::move(work)),
        acceptor_(listen_fd, limits_.gate_patience_us, gate,
                  [this](UniqueFd socket, std::string peer) {
                    loop_.Add(std::move(socket), std::move(peer));
                  }) {}

  bool Drain(int64_t deadline_us) {
    acceptor_.Stop();
    return loop_.Drain(deadline_us);
  }

  HttpServerStats stats() const {
    return {.open_connections = loop_.open_connections(),
            .requests_in_handlers = loop_.requests_in_handlers(),
            .requests_queued = loop_.requests_queued(),
            .connections_accepted = loop_.accepted(),
            .connections_refused = loop_.connections_refused(),
            .requests_received = loop_.requests_received(),
            .requests_refused = loop_.requests_refused()};
  }

 private:
  const HttpLimits limits_;
  HttpLoop loop_;
  HttpAcceptor acceptor_;  // stops first: it feeds the loop
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Start(int listen_fd, const HttpLimits& limits,
                                                      HttpHandler handler,
                                                      HttpProblemHandler problem_handler,
                                                      ConnectionGate* gate, LoopWork work) {
  SYSONE_CHECK(limits.threads > 0 && limits.max_connections > 0,
               "a server needs a thread and a connection");
  int listening = 0;
  socklen_t size = sizeof listening;
  if (getsockopt(listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
    return Error(Code::kUnavailable, "descriptor %d is no listening socket", listen_fd);
  const int flags = fcntl(listen_fd, F_GETFL);
  if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
    return Error(Code::kUnavailable, "cannot make the listening socket non-blocking: %s",
                 std::strerror(errno));
  return std::unique_ptr<HttpServer>(new HttpServer(std::make_unique<Impl>(
      listen_fd, limits, std::move(handler), std::move(problem_handler), gate, std::move(work))));
}

bool HttpServer::Drain(int64_t deadline_us) { return impl_->Drain(deadline_us); }
HttpServerStats HttpServer::stats() const { return impl_->stats(); }

}  // namespace sysone
