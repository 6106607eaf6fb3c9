// SPDX-License-Identifier: Apache-2.0
#include "router/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/exit_codes.h"
#include "base/log.h"

namespace sysone {
namespace {

// As the C library wants a list of strings: with a null at its end.
std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<pid_t> StartChild(const ChildCommand& command) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (command.stdout_fd >= 0)
    posix_spawn_file_actions_adddup2(&files, command.stdout_fd, STDOUT_FILENO);
  // dup2 onto itself clears close-on-exec, so this is right for keep_fd == kInheritedFd, too.
  if (command.keep_fd >= 0) posix_spawn_file_actions_adddup2(&files, command.keep_fd, kInheritedFd);
  posix_spawn_file_actions_addclosefrom_np(&files,
                                           command.keep_fd >= 0 ? kInheritedFd + 1 : kInheritedFd);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::vector<char*> argv = Pointers(command.args);
  argv.insert(argv.begin(), const_cast<char*>(command.program.c_str()));
  std::vector<char*> variables = Pointers(command.environment);

  pid_t pid = 0;
  const int error = posix_spawnp(&pid, command.program.c_str(), &files, &attributes, argv.data(),
                                 command.environment.empty() ? environ : variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0)
    return Error(Code::kNotFound, "cannot start %s: %s", command.program.c_str(), strerror(error));
  return pid;
}

std::string ExitText(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return Format("signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
  return Format("exit status %d", WEXITSTATUS(wait_status));
}

bool IsHopelessExit(int wait_status) {
  if (!WIFEXITED(wait_status)) return false;
  return WEXITSTATUS(wait_status) == kExitUsage || WEXITSTATUS(wait_status) == kExitSetup;
}

pid_t ParentOf(pid_t pid) {
  std::ifstream file(Format("/proc/%d/stat", pid));
  std::string text;
  std::getline(file, text);
  // "pid (name) state parent …"; the name may hold anything.
  const size_t behind = text.rfind(')');
  if (behind == std::string::npos) return 0;
  std::istringstream fields(text.substr(behind + 1));
  char state = 0;
  pid_t parent = 0;
  fields >> state >> parent;
  return fields ? parent : 0;
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code ended;  // a process ended meanwhile: its folder is gone
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ended)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && *end == '\0' && ParentOf(pid) == parent && IdentityOfPid(pid))
      children.push_back(pid);
  }
  return children;
}

ProcessEnd::ProcessEnd(ProcessIdentity process)
    : fd_(static_cast<int>(syscall(SYS_pidfd_open, process.pid(), 0))) {
  // The pid may be another's by now; if it is not even after the descriptor was made, that is of the right process.
  if (IdentityAlive(process) || fd_ < 0) return;
  close(fd_);
  fd_ = -1;
}

ProcessEnd::ProcessEnd(ProcessEnd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

ProcessEnd& ProcessEnd::operator=(ProcessEnd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ProcessEnd::~ProcessEnd() {
  if (fd_ >= 0) close(fd_);
}

std::string OwnProgramDir() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace sysone
