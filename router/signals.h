// The signals of the router as a file descriptor, so that its one loop waits for them together with time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"

namespace sysone {

// Blocks SIGTERM, SIGINT, SIGHUP and SIGCHLD in this thread and ignores SIGPIPE (the reader of our output may go away);
// create it before any other thread starts. Children
// are started with an empty mask (child_process.h).
class SignalSource {
 public:
  static Result<std::unique_ptr<SignalSource>> Create();
  ~SignalSource();
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int fd() const { return fd_; }

  // Waits until a signal is pending, one of `others` can be read, or `until_us` (MonotonicUs); -1 waits for ever.
  void Wait(int64_t until_us, std::span<const int> others = {}) const;

  // Takes what is pending: how often it was asked to stop. SIGCHLD only ends a Wait: who died, and what else there may be,
  // is looked for.
  int TakeStopRequests();

 private:
  explicit SignalSource(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace sysone
