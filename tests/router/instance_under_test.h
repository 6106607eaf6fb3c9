// A real `sysone serve` with stub children, for tests: started with a free port and a name of its own, its output at hand.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "shm_arena/arena.h"
#include "tests/model/temp_folder.h"

namespace sysone {

// The programs that the router starts: links to the stub, and the files that tell it what to do.
class StubPrograms {
 public:
  StubPrograms();
  void Tell(ProcessRole role, const std::string& behaviour) const;
  const std::string& dir() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

// One run of the program, which is the instance's keeper. Ends it with SIGKILL if the test did not.
class InstanceUnderTest {
 public:
  // `sysone serve` on a tiny model, with these flags behind it; the instance's name is unique.
  InstanceUnderTest(const StubPrograms& programs, const std::vector<std::string>& flags);
  // The whole command line behind `sysone`.
  explicit InstanceUnderTest(const std::vector<std::string>& args);
  ~InstanceUnderTest();

  // True when `text` appeared in the output (both streams), at least `times` times, within 20 s.
  bool Says(const std::string& text, int times = 1);
  std::string output();
  void Signal(int number) const;
  // The exit status, or minus the signal's number; waits up to 20 s and fails the test after that.
  int Wait();

  pid_t pid() const { return pid_; }
  // The living router; 0 when there is none.
  pid_t RouterPid() const;
  const std::string& name() const { return name_; }
  // Attached anew at each call; the instance must be up.
  Arena Attach() const;
  // Pid of a registered child; 0 when there is none.
  pid_t ChildPid(ProcessRole role, uint32_t index) const;
  // Every child that is registered now.
  std::vector<pid_t> ChildPids() const;
  // Segment and run dir are gone.
  bool LeftNothing() const;

 private:
  void Start(const std::vector<std::string>& args);
  std::string name_;
  pid_t pid_ = 0;
  bool reaped_ = false;
  int output_fd_ = -1;
  std::thread reader_;
  std::mutex mutex_;
  std::condition_variable grown_;
  std::string output_;   // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_: the end of the output was read
};

// Looks again and again until `condition` holds, up to 20 s.
bool Eventually(const std::function<bool()>& condition);

bool ProcessExists(pid_t pid);

}  // namespace sysone
