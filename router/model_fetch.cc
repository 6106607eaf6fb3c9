// SPDX-License-Identifier: Apache-2.0
#include "router/model_fetch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "router/child_process.h"

namespace sysone {
namespace {

// Reads `fd` to its end. False when a signal asked to stop.
bool ReadAll(int fd, SignalSource& signals, std::string& out) {
  for (;;) {
    pollfd entries[2] = {{fd, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0 && errno != EINTR) return false;
    if (entries[1].revents != 0 && signals.TakeStopRequests() > 0) return false;
    if (entries[0].revents == 0) continue;
    char buffer[4096];
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count <= 0) return true;
    out.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

Result<std::string> FetchModel(const std::string& script, const std::string& model,
                               SignalSource& signals) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return Error(Code::kInternal, "pipe: %s", strerror(errno));
  const auto child = StartChild({script, {model}, -1, pipe_fds[1]});
  close(pipe_fds[1]);
  if (!child.ok()) {
    close(pipe_fds[0]);
    return child.status();
  }
  std::string path;
  const bool whole = ReadAll(pipe_fds[0], signals, path);
  close(pipe_fds[0]);
  if (!whole) kill(-*child, SIGTERM);
  int wait_status = 0;
  while (waitpid(*child, &wait_status, 0) < 0 && errno == EINTR) {
  }
  if (!whole) return Error(Code::kCancelled, "stopped while fetching '%s'", model.c_str());
  if (wait_status != 0)
    return Error(Code::kNotFound, "cannot fetch '%s' (%s)", model.c_str(),
                 ExitText(wait_status).c_str());
  while (path.ends_with('\n')) path.pop_back();
  if (path.empty())
    return Error(Code::kInternal, "%s printed no path for '%s'", script.c_str(), model.c_str());
  return path;
}

}  // namespace sysone
