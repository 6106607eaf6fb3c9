// A keeper with routers that are nothing but an end.
// SPDX-License-Identifier: Apache-2.0
#include "router/keeper.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "tests/router/instance_under_test.h"
#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

class KeeperTest : public testing::Test {
 protected:
  KeeperTest() {
    void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SYSONE_CHECK(memory != MAP_FAILED, "mmap");
    routers_ = new (memory) std::atomic<int>(0);
  }
  ~KeeperTest() override { munmap(routers_, sizeof(std::atomic<int>)); }

  void HasSupervised() {
    SupervisionRecord record;
    record.child_count = 1;
    memory_.Save(record);
  }
  [[noreturn]] static void Crash() {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }

  Arena arena_ = Arena::InMemory(SmallConfig());
  InstanceMemory memory_;
  std::unique_ptr<SignalSource> signals_ = *SignalSource::Create();
  Keeper keeper_{arena_, memory_, *signals_, 60'000'000};
  std::atomic<int>* routers_;  // shared with forked processes
};

TEST_F(KeeperTest, EndsWithTheStatusOfARouterThatEnds) {
  EXPECT_EQ(keeper_.Run([](pid_t) { return 7; }), 7);
  EXPECT_EQ(arena_.metrics().Total(Counter::kRouterRestarts), 0u);
}

TEST_F(KeeperTest, GivesUpAfterThreeRoutersThatNeverSupervised) {
  const auto crash = [&](pid_t) -> std::optional<int> {
    routers_->fetch_add(1);
    Crash();
  };
  EXPECT_EQ(keeper_.Run(crash), kExitFailure);
  EXPECT_EQ(routers_->load(), 3);
}

TEST_F(KeeperTest, StartsARouterAgainAndAgainOnceOneHasSupervised) {
  HasSupervised();
  const int64_t begin_us = MonotonicUs();
  EXPECT_EQ(keeper_.Run([&](pid_t) -> std::optional<int> {
    if (routers_->fetch_add(1) < 5) Crash();
    return kExitOk;
  }),
            kExitOk);
  EXPECT_EQ(routers_->load(), 6);
  EXPECT_GE(MonotonicUs() - begin_us, (10 + 20 + 40 + 80 + 160) * 1000);
  EXPECT_EQ(arena_.metrics().Total(Counter::kRouterRestarts), 5u);
}

TEST_F(KeeperTest, AStopRequestDoesNotWaitForTheBackOff) {
  HasSupervised();
  const auto route = [&](pid_t keeper) -> std::optional<int> {
    if (routers_->fetch_add(1) == 8) return memory_.stop_requests();
    if (routers_->load() < 8) Crash();
    // The delay after this one is 1.28 s.
    const pid_t router = getpid();
    if (fork() != 0) Crash();
    Eventually([router] { return !ProcessExists(router); });
    kill(keeper, SIGTERM);
    _exit(0);
  };
  const int64_t begin_us = MonotonicUs();
  EXPECT_EQ(keeper_.Run(route), 1);
  EXPECT_LT(MonotonicUs() - begin_us, 2'550'000) << "the sum of all delays";
}

TEST_F(KeeperTest, GivesUpWhenRoutersThatAreToStopCrashThreeTimes) {
  HasSupervised();
  memory_.AskToStop(1, 1);
  EXPECT_EQ(keeper_.Run([&](pid_t) -> std::optional<int> {
    routers_->fetch_add(1);
    Crash();
  }),
            kExitFailure);
  EXPECT_EQ(routers_->load(), 3);
}

TEST_F(KeeperTest, ARouterWithoutHeartbeatIsKilledAndReplaced) {
  HasSupervised();
  Keeper keeper(arena_, memory_, *signals_, 200'000);
  EXPECT_EQ(keeper.Run([&](pid_t) -> std::optional<int> {
    if (routers_->fetch_add(1) == 0)
      for (;;) pause();
    return kExitOk;
  }),
            kExitOk);
  EXPECT_EQ(routers_->load(), 2);
}

TEST_F(KeeperTest, ChildrenSeeSomebodyAliveAsLongAsThereIsAKeeper) {
  HasSupervised();
  EXPECT_EQ(keeper_.Run([&](pid_t keeper) -> std::optional<int> {
    const auto creator = [this] { return ProcessIdentity{arena_.header()->creator.load()}; };
    if (routers_->fetch_add(1) > 0) return creator().pid() == keeper;
    arena_.TakeOver();
    Crash();
  }),
            1);
}

TEST_F(KeeperTest, ARouterThatLosesItsKeeperKeepsTheNext) {
  std::atomic<int>* ends = routers_;
  const pid_t first = fork();
  if (first == 0) {
    HasSupervised();
    const int status = keeper_.Run([&](pid_t keeper) -> std::optional<int> {
      if (ends->fetch_add(1) > 0) return keeper != getppid() ? 0 : 3;
      kill(keeper, SIGKILL);
      while (getppid() == keeper) signals_->Wait(-1);
      return std::nullopt;
    });
    // In the process that was the first router.
    ends->fetch_add(status * 100);
    _exit(0);
  }
  int wait_status = 0;
  ASSERT_EQ(waitpid(first, &wait_status, 0), first);
  EXPECT_TRUE(WIFSIGNALED(wait_status));
  EXPECT_TRUE(Eventually([&] { return ends->load() == 302; })) << ends->load();
  EXPECT_EQ(arena_.metrics().Total(Counter::kKeeperRestarts), 1u);
}

}  // namespace
}  // namespace sysone
