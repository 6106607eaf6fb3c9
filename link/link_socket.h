// The two ends of a link between hosts: ZeroMQ over TCP, encrypted and authenticated with CURVE keys where there are any. They
// carry frames (link_message.h) and say who connects, leaves and is refused; what frames mean is their users' affair.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "link/link_keys.h"

namespace sysone {

// What both ends can do. One thread.
class LinkSocket {
 public:
  virtual ~LinkSocket() = default;
  // Returns when there is something to receive or news, when `wake_fd` (-1: none) is readable, or at `until_us` (MonotonicUs).
  virtual void Wait(int wake_fd, int64_t until_us) = 0;
};

// The router's end: any number of hosts at one listening socket.
class LinkListener : public LinkSocket {
 public:
  // A connection, for as long as it lasts.
  using Peer = std::string;

  // `listen_fd`: bound, listening, non-blocking; stays the caller's. Without `keys` anybody may connect.
  static Result<std::unique_ptr<LinkListener>> Create(int listen_fd,
                                                      const std::optional<LinkKeys>& keys);
  // False: nothing is there. `frame` is replaced.
  virtual bool Receive(Peer& from, std::vector<std::byte>& frame) = 0;
  // Never blocks. False: that connection is gone.
  virtual bool Send(const Peer& to, std::span<const std::byte> frame) = 0;
};

// A host's end: one connection. When it is lost or refused it stays so: close it and make another.
class LinkConnection : public LinkSocket {
 public:
  // Returns at once; the connection is made meanwhile. `address` is tcp://HOST:PORT. kInvalidArgument when it is not.
  static Result<std::unique_ptr<LinkConnection>> Connect(const std::string& address,
                                                         const std::optional<LinkKeys>& keys);
  virtual bool Receive(std::vector<std::byte>& frame) = 0;
  // Never blocks; what is sent before the connection stands goes out when it does. False: it is broken.
  virtual bool Send(std::span<const std::byte> frame) = 0;
  // Why there is no connection any more, or never was: "connection refused". Empty while there is hope.
  virtual const std::string& broken() = 0;
};

}  // namespace sysone
