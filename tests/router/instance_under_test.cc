// SPDX-License-Identifier: Apache-2.0
#include "tests/router/instance_under_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "base/clock.h"
#include "base/log.h"
#include "shm_arena/doorbell.h"

namespace sysone {
namespace {

constexpr int64_t kPatienceUs = 20'000'000;
constexpr char kTinyModel[] = SYSONE_SOURCE_DIR "/tests/golden/qwen3";

std::string ProgramName(ProcessRole role) {
  return role == ProcessRole::kWorker ? "sysone-worker" : "sysone-api-server";
}

std::string UniqueName() {
  static std::atomic<int> count = 0;
  return Format("test-%d-%d", getpid(), ++count);
}

}  // namespace

StubPrograms::StubPrograms() {
  for (const ProcessRole role : {ProcessRole::kWorker, ProcessRole::kApiServer})
    std::filesystem::create_symlink(SYSONE_STUB_CHILD, folder_.path() + "/" + ProgramName(role));
}

void StubPrograms::Tell(ProcessRole role, const std::string& behaviour) const {
  folder_.Write(ProgramName(role) + ".do", behaviour);
}

InstanceUnderTest::InstanceUnderTest(const StubPrograms& programs,
                                     const std::vector<std::string>& flags)
    : name_(UniqueName()) {
  std::vector<std::string> args = {
      "serve",          kTinyModel, "--host",        "127.0.0.1",    "--port",          "0",
      "--shm-arena-mb", "12",       "--program-dir", programs.dir(), "--instance-name", name_};
  args.insert(args.end(), flags.begin(), flags.end());
  for (size_t i = 0; i + 1 < args.size(); ++i)
    if (args[i] == "--instance-name") name_ = args[i + 1];  // a flag of the test's own wins
  Start(args);
}

InstanceUnderTest::InstanceUnderTest(const std::vector<std::string>& args) { Start(args); }

void InstanceUnderTest::Start(const std::vector<std::string>& args) {
  int fds[2];
  SYSONE_CHECK(pipe2(fds, O_CLOEXEC) == 0, "pipe");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, fds[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, fds[1], STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(SYSONE_PROGRAM)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, SYSONE_PROGRAM, &files, nullptr, argv.data(), environ);
  SYSONE_CHECK(error == 0, "cannot start %s", SYSONE_PROGRAM);
  posix_spawn_file_actions_destroy(&files);
  close(fds[1]);
  output_fd_ = fds[0];
  reader_ = std::thread([this] {
    char buffer[4096];
    for (ssize_t count = 0; (count = read(output_fd_, buffer, sizeof buffer)) > 0;) {
      const std::lock_guard lock(mutex_);
      output_.append(buffer, static_cast<size_t>(count));
      grown_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    closed_ = true;
    grown_.notify_all();
  });
}

InstanceUnderTest::~InstanceUnderTest() {
  if (!reaped_) {
    // Two stop signals end the children as well; SIGKILL is for a router that does not even do that.
    kill(pid_, SIGTERM);
    Eventually(
        [this] { return kill(pid_, SIGINT) != 0 || waitpid(pid_, nullptr, WNOHANG) == pid_; });
    kill(pid_, SIGKILL);
  }
  reader_.join();  // ends when the last child that writes there has ended
  close(output_fd_);
  if (testing::Test::HasFailure())
    fprintf(stderr, "--- output of %s\n%s---\n", name_.c_str(), output_.c_str());
}

bool InstanceUnderTest::Says(const std::string& text, int times) {
  const auto said = [&] {
    int count = 0;
    for (size_t at = 0; (at = output_.find(text, at)) != std::string::npos; at += text.size())
      ++count;
    return count >= times;
  };
  std::unique_lock lock(mutex_);
  grown_.wait_for(lock, std::chrono::microseconds(kPatienceUs), [&] { return closed_ || said(); });
  return said();
}

std::string InstanceUnderTest::output() {
  const std::lock_guard lock(mutex_);
  return output_;
}

void InstanceUnderTest::Signal(int number) const { kill(pid_, number); }

int InstanceUnderTest::Wait() {
  int wait_status = 0;
  reaped_ = Eventually([&] { return waitpid(pid_, &wait_status, WNOHANG) == pid_; });
  EXPECT_TRUE(reaped_) << "the router does not end";
  return WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

Arena InstanceUnderTest::Attach() const {
  auto arena = Arena::Attach(name_, kPatienceUs);
  SYSONE_CHECK(arena.ok(), "%s", arena.status().message().c_str());
  return std::move(arena).value();
}

pid_t InstanceUnderTest::ChildPid(ProcessRole role, uint32_t index) const {
  const Arena arena = Attach();
  const ProcessTable table = arena.processes();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const auto info = table.Read(ProcessId{i});
    if (info && info->role == role && info->role_index == index && table.Alive(info->id))
      return info->identity.pid();
  }
  return 0;
}

pid_t InstanceUnderTest::RouterPid() const { return ChildPid(ProcessRole::kRouter, 0); }

std::vector<pid_t> InstanceUnderTest::ChildPids() const {
  std::vector<pid_t> pids;
  const Arena arena = Attach();
  const ProcessTable table = arena.processes();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const auto info = table.Read(ProcessId{i});
    if (info && info->role != ProcessRole::kRouter) pids.push_back(info->identity.pid());
  }
  return pids;
}

bool InstanceUnderTest::LeftNothing() const {
  const char* runtime_dir = getenv("XDG_RUNTIME_DIR");
  const auto run_dir_exists = [this](const std::string& place) {
    return std::filesystem::exists(DefaultRunDir(place, getuid(), name_));
  };
  return !std::filesystem::exists("/dev/shm/" + SegmentName(name_)) && !run_dir_exists("") &&
         !run_dir_exists(runtime_dir == nullptr ? "" : runtime_dir);
}

bool Eventually(const std::function<bool()>& condition) {
  const int64_t until_us = MonotonicUs() + kPatienceUs;
  while (!condition()) {
    if (MonotonicUs() > until_us) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

bool ProcessExists(pid_t pid) { return static_cast<bool>(IdentityOfPid(pid)); }

}  // namespace sysone
