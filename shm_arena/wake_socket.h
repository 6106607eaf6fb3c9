// How an API server is woken that waits for its clients' sockets and for the ends of its jobs at once: an event loop cannot
// sleep on a futex, so it has a datagram socket in the run folder, and who has news for it while it sleeps
// (NoticeBoard::Post) sends an empty datagram there. The datagram says nothing: the notice board does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "base/status.h"
#include "shm_arena/ids.h"

namespace sysone {

// The receiving end. Closed on destruction; its file is removed.
class WakeSocket {
 public:
  // Binds `<run_dir>/process-<p>.wake`; a file that a dead process left there is replaced. kInvalidArgument when the path is
  // longer than a socket's may be, or cannot be bound.
  static Result<WakeSocket> Bind(const std::string& run_dir, ProcessId process);
  WakeSocket(WakeSocket&& other) noexcept;
  WakeSocket& operator=(WakeSocket&&) = delete;
  ~WakeSocket();

  int fd() const { return fd_; }  // readable after a wake-up
  void Drain();                   // takes what has come

 private:
  WakeSocket(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

// The sending end. Any thread. Stays connected to the processes that it has woken: finding a socket by its path takes longer
// than the rest of a wake-up.
class ProcessWaker {
 public:
  explicit ProcessWaker(const std::string& run_dir);
  ~ProcessWaker();
  ProcessWaker(const ProcessWaker&) = delete;
  ProcessWaker& operator=(const ProcessWaker&) = delete;

  // Never blocks. Does nothing when nobody listens there: the receiver's sweep finds its notice.
  void Wake(ProcessId process) const;

 private:
  const std::string run_dir_;
  mutable std::mutex mutex_;
  mutable std::array<int, kMaxProcesses> fds_;  // -1: not connected yet
};

}  // namespace sysone
