// Where answers come from that are not made while a handler runs: the event loop of the HTTP server looks there between its
// other work, and sleeps on it together with its sockets. So a request that waits for a worker holds no thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "api_server/http_types.h"

namespace sysone {

// All functions are called on the loop's thread.
class LoopSource {
 public:
  virtual ~LoopSource() = default;

  // Becomes readable when the source wakes the loop; Quieten makes it unreadable again.
  virtual int wake_fd() const = 0;
  virtual void Quieten() = 0;
  // Does what there is to do, which may answer calls. Returns when it wants to be called again at the latest (MonotonicUs;
  // INT64_MAX: only after a wake-up). Called after every sleep of the loop.
  virtual int64_t Poll() = 0;
  // Before the loop sleeps. False: there is something to do, do not sleep.
  [[nodiscard]] virtual bool FallAsleep() = 0;
  // After FallAsleep, whatever it returned.
  virtual void WakeUp() = 0;
};

// What the event loop does beside moving bytes.
struct LoopWork {
  // Whether a request, whose body is as sent, is so little work that the loop handles it itself. Default: none is.
  std::function<bool(const HttpRequest&)> quick = [](const HttpRequest&) { return false; };
  LoopSource* source = nullptr;  // outlives the server
};

}  // namespace sysone
