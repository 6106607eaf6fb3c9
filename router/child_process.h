// Starting a program as a child of the router, saying how one ended, and finding those of an earlier router.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "shm_arena/process_table.h"

namespace sysone {

// Where an inherited descriptor lies in the child.
inline constexpr int kInheritedFd = 3;

struct ChildCommand {
  std::string program;            // path, or a name that is looked for in PATH
  std::vector<std::string> args;  // behind the program's name
  int keep_fd = -1;               // becomes kInheritedFd in the child; -1: none
  int stdout_fd = -1;             // becomes the child's standard output; -1: the router's
  std::vector<std::string> environment = {};  // "NAME=value"; empty: the router's
};

// The child runs in a process group of its own (a Ctrl-C reaches the router only), with default signals, standard input
// from /dev/null, and no other open file of ours: an inherited lock or socket would outlive the router.
Result<pid_t> StartChild(const ChildCommand& command);

// "exit status 3", "signal 9 (Killed)"; `wait_status` as of waitpid.
std::string ExitText(int wait_status);

// The exit status was kExitUsage or kExitSetup.
bool IsHopelessExit(int wait_status);

// The parent of process `pid`; 0 when there is no such process.
pid_t ParentOf(pid_t pid);

// The living children of process `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent);

// A descriptor that becomes readable when a process ends, be it a child of this one or not.
class ProcessEnd {
 public:
  ProcessEnd() = default;  // none: fd() is -1
  explicit ProcessEnd(ProcessIdentity process);
  ProcessEnd(ProcessEnd&& other) noexcept;
  ProcessEnd& operator=(ProcessEnd&& other) noexcept;
  ~ProcessEnd();

  int fd() const { return fd_; }  // -1 where the kernel has none: then look from time to time

 private:
  int fd_ = -1;
};

// The folder of the running program.
std::string OwnProgramDir();

}  // namespace sysone
