// Who of several API servers on one listening socket takes the next connection. The server asks
// before each accept and reports what it holds, so that connections go to the least loaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sysone {

// MyTurn and WaitForChange are called by the accepting thread only, Opened and Closed by any
// thread.
class ConnectionGate {
 public:
  virtual ~ConnectionGate() = default;
  // True when this process should take a connection that is waiting now.
  virtual bool MyTurn() = 0;
  // Returns when some process's load may have changed, or after `timeout_us`; early returns are
  // fine.
  virtual void WaitForChange(int64_t timeout_us) = 0;
  // Each accepted connection: once opened, once closed.
  virtual void Opened() = 0;
  virtual void Closed() = 0;
  // Each whole request: once begun, once answered.
  virtual void Begun() {}
  virtual void Answered() {}
};

// For an API server that has its socket to itself.
class OpenGate final : public ConnectionGate {
 public:
  bool MyTurn() override { return true; }
  void WaitForChange(int64_t) override {}
  void Opened() override {}
  void Closed() override {}
};

}  // namespace sysone
