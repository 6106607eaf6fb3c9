// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/wake_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace sysone {
namespace {

std::string PathOf(const std::string& run_dir, ProcessId process) {
  return run_dir + "/process-" + std::to_string(Index(process)) + ".wake";
}

// False when the path does not fit.
bool AddressOf(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

int DatagramSocket() {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  SYSONE_CHECK(fd >= 0, "socket: %s", std::strerror(errno));
  return fd;
}

}  // namespace

Result<WakeSocket> WakeSocket::Bind(const std::string& run_dir, ProcessId process) {
  std::string path = PathOf(run_dir, process);
  sockaddr_un address;
  if (!AddressOf(path, address))
    return Error(Code::kInvalidArgument,
                 "the socket path %s is too long: choose a shorter run directory or instance name",
                 path.c_str());
  WakeSocket bound(DatagramSocket(), std::move(path));
  unlink(bound.path_.c_str());
  if (bind(bound.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Error(Code::kInvalidArgument, "the socket %s cannot be bound: %s", bound.path_.c_str(),
                 std::strerror(errno));
  return bound;
}

WakeSocket::WakeSocket(WakeSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

WakeSocket::~WakeSocket() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

void WakeSocket::Drain() {
  char byte;
  while (recv(fd_, &byte, 1, 0) >= 0) {
  }
}

ProcessWaker::ProcessWaker(const std::string& run_dir) : run_dir_(run_dir) { fds_.fill(-1); }

ProcessWaker::~ProcessWaker() {
  for (const int fd : fds_)
    if (fd >= 0) close(fd);
}

void ProcessWaker::Wake(ProcessId process) const {
  const std::lock_guard lock(mutex_);
  int& fd = fds_[Index(process)];
  const auto sent = [&fd] {
    // Full: then it has something to read.
    return fd >= 0 && (send(fd, "", 0, MSG_NOSIGNAL | MSG_DONTWAIT) == 0 || errno == EAGAIN);
  };
  if (sent()) return;
  // The first time, or its socket was another process's, which is dead.
  if (fd >= 0) close(fd);
  fd = DatagramSocket();
  sockaddr_un address;
  if (AddressOf(PathOf(run_dir_, process), address) &&
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    sent();
}

}  // namespace sysone
