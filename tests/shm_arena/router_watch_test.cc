// Routers and children as forked processes: nothing here outlives the test, because children are killed and waited for.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/router_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "base/exit_codes.h"
#include "base/log.h"
#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

constexpr RouterWatch::Timing kQuick = {5'000, 100'000};

// A forked process that runs `body`, tells that it did, and sleeps until it is killed.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<void()>& body) {
    int fds[2];
    SYSONE_CHECK(pipe(fds) == 0, "pipe");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // should the test itself be killed
      body();
      [[maybe_unused]] const ssize_t told = write(fds[1], "x", 1);
      for (;;) pause();
    }
    char byte = 0;
    EXPECT_EQ(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    close(fds[1]);
  }
  ~ForkedProcess() { Kill(); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

// Blocks SIGTERM for a test, so that the watch's signal can be waited for.
class BlockedTerm {
 public:
  BlockedTerm() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGTERM);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedTerm() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  bool Arrives(int64_t within_us) const {
    const timespec time = {within_us / 1'000'000, within_us % 1'000'000 * 1000};
    return sigtimedwait(&set_, nullptr, &time) == SIGTERM;
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

class RouterWatchTest : public testing::Test {
 protected:
  RouterWatchTest() {
    std::filesystem::create_directories(run_dir_);
    close(open((run_dir_ + "/group-0.ipc").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  }
  ~RouterWatchTest() override {
    RemoveRunDir(run_dir_);
    std::filesystem::remove(segment_);
  }
  std::function<void()> Router() {
    return [this] {
      const auto* arena =
          new Result<Arena>(Arena::Create(name_, SmallConfig()));  // lives as long as the process
      SYSONE_CHECK(arena->ok(), "no arena");
    };
  }
  std::function<void()> OtherChild() {
    return [this] {
      auto* arena = new Result<Arena>(Arena::Attach(name_, 1'000'000));
      SYSONE_CHECK((*arena)->Register(ProcessRole::kWorker, 0).ok(), "not registered");
    };
  }
  Arena Attached() {
    auto arena = Arena::Attach(name_, 1'000'000);
    SYSONE_CHECK(arena.ok(), "%s", arena.status().message().c_str());
    SYSONE_CHECK(arena->Register(ProcessRole::kApiServer, 0).ok(), "not registered");
    return std::move(arena).value();
  }
  bool SegmentExists() const { return std::filesystem::exists(segment_); }

  const std::string name_ = Format("watch-%d", getpid());
  const std::string segment_ = "/dev/shm/" + SegmentName(name_);
  const std::string run_dir_ = testing::TempDir() + "sysone-" + name_ + "/run";
  const BlockedTerm term_;
};

TEST_F(RouterWatchTest, SaysNothingWhileTheRouterLivesAndRemovesNothing) {
  ForkedProcess router(Router());
  Arena arena = Attached();
  {
    const RouterWatch watch(arena, name_, run_dir_, kQuick);
    EXPECT_FALSE(term_.Arrives(100'000));
  }
  EXPECT_TRUE(SegmentExists());
  EXPECT_TRUE(std::filesystem::exists(run_dir_));
}

TEST_F(RouterWatchTest, ARouterThatTakesOverWithinTheLeaseIsAsGoodAsTheOld) {
  ForkedProcess router(Router());
  Arena arena = Attached();
  {
    const RouterWatch watch(arena, name_, run_dir_, {5'000, 20'000'000});
    router.Kill();
    EXPECT_FALSE(term_.Arrives(100'000));
    arena.TakeOver();
    EXPECT_FALSE(term_.Arrives(100'000));
  }
  EXPECT_TRUE(SegmentExists());
  EXPECT_TRUE(std::filesystem::exists(run_dir_));
}

TEST_F(RouterWatchTest, SendsSigtermWhenNoRouterTakesOverAndTheLastChildRemovesTheNames) {
  ForkedProcess router(Router());
  Arena arena = Attached();
  {
    const RouterWatch watch(arena, name_, run_dir_, {5'000, 300'000});
    router.Kill();
    EXPECT_TRUE(term_.Arrives(20'000'000));
    EXPECT_TRUE(SegmentExists());
  }
  EXPECT_FALSE(SegmentExists());
  EXPECT_FALSE(std::filesystem::exists(run_dir_));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(run_dir_).parent_path()));
}

TEST_F(RouterWatchTest, AChildThatIsNotTheLastLeavesTheNames) {
  ForkedProcess router(Router());
  ForkedProcess other(OtherChild());
  Arena arena = Attached();
  {
    const RouterWatch watch(arena, name_, run_dir_, {5'000, 300'000});
    router.Kill();
    EXPECT_TRUE(term_.Arrives(20'000'000));
  }
  EXPECT_TRUE(SegmentExists());
  EXPECT_TRUE(std::filesystem::exists(run_dir_));
}

TEST_F(RouterWatchTest, ASegmentThatANewRouterMadeIsLeftAlone) {
  ForkedProcess router(Router());
  Arena arena = Attached();
  std::optional<ForkedProcess> successor;
  {
    const RouterWatch watch(arena, name_, run_dir_, {5'000, 300'000});
    router.Kill();
    EXPECT_TRUE(term_.Arrives(20'000'000));
    // What a new router finds when this child has just marked itself as exited.
    std::filesystem::remove(segment_);
    successor.emplace(Router());
  }
  EXPECT_TRUE(SegmentExists());
  EXPECT_TRUE(std::filesystem::exists(run_dir_));
}

TEST_F(RouterWatchTest, AProcessThatDoesNotDrainWithinTheLeaseIsEnded) {
  ForkedProcess router(Router());
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Arena arena = Attached();
    const RouterWatch watch(arena, name_, run_dir_, kQuick);
    for (;;) pause();  // SIGTERM is blocked, so nothing but the watch ends this
  }
  // The child must be attached before its router dies: an arena without a router is found all the same, so that is enough.
  router.Kill();
  int wait_status = 0;
  ASSERT_EQ(waitpid(child, &wait_status, 0), child);
  ASSERT_TRUE(WIFEXITED(wait_status));
  EXPECT_EQ(WEXITSTATUS(wait_status), kExitFailure);
  EXPECT_FALSE(SegmentExists());
}

}  // namespace
}  // namespace sysone
