// The accepting thread: takes connections off the shared listening socket when the gate says so,
// and refuses those over the cap with an answer. Apart from the event loop because the gate may
// make it wait.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "api_server/connection_gate.h"
#include "api_server/unique_fd.h"

namespace sysone {

class HttpAcceptor {
 public:
  // Gets a non-blocking socket and the client's "address:port". Runs on the accepting thread.
  using Take = std::function<void(UniqueFd socket, std::string peer)>;

  // `listen_fd` is non-blocking and, like `gate`, outlives the acceptor.
  HttpAcceptor(int listen_fd, int64_t gate_patience_us, ConnectionGate* gate, Take take);
  ~HttpAcceptor() { Stop(); }

  // Accepts no more; what waits in the kernel is left to other processes. Idempotent, one thread.
  void Stop();

 private:
  void Run();
  bool WaitForConnection(int timeout_ms);
  bool AwaitTurn();
  bool AcceptOne();

  const int listen_fd_;
  const int64_t gate_patience_us_;
  ConnectionGate* const gate_;
  const Take take_;
  UniqueFd stop_;         // eventfd, readable once stopped
  bool stopped_ = false;  // of the accepting thread: it has seen stop_
  std::thread thread_;
};

}  // namespace sysone
