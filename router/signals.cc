// SPDX-License-Identifier: Apache-2.0
#include "router/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"

namespace sysone {

Result<std::unique_ptr<SignalSource>> SignalSource::Create() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return Error(Code::kInternal, "signalfd: %s", strerror(errno));
  return std::unique_ptr<SignalSource>(new SignalSource(fd));
}

SignalSource::~SignalSource() { close(fd_); }

void SignalSource::Wait(int64_t until_us, std::span<const int> others) const {
  int timeout_ms = -1;
  if (until_us >= 0) {
    const int64_t left_us = std::max<int64_t>(until_us - MonotonicUs(), 0);
    timeout_ms = static_cast<int>(std::min<int64_t>((left_us + 999) / 1000, 1'000'000));
  }
  std::vector<pollfd> entries{{fd_, POLLIN, 0}};
  for (const int fd : others) entries.push_back({fd, POLLIN, 0});  // those below zero are ignored
  poll(entries.data(), entries.size(), timeout_ms);
}

int SignalSource::TakeStopRequests() {
  int requests = 0;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    if (info.ssi_signo != SIGCHLD) ++requests;
  return requests;
}

}  // namespace sysone
