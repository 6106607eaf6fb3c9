// `sysone serve` with stub children: its router or its keeper is killed, and nothing else happens.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "tests/router/instance_under_test.h"

namespace sysone {
namespace {

constexpr ProcessRole kWorker = ProcessRole::kWorker;
constexpr ProcessRole kApi = ProcessRole::kApiServer;
constexpr char kReady[] = "sysone is ready on http://127.0.0.1:";
constexpr char kReadyAgain[] = "everything is ready again";

class ReattachTest : public testing::Test {
 protected:
  // Ready, and the router has begun another round since: what it said before is in the instance's memory.
  static bool GetsReady(InstanceUnderTest& sysone) {
    if (!sysone.Says(kReady)) return false;
    const int64_t now_us = MonotonicUs();
    kill(sysone.RouterPid(), SIGCHLD);  // ends its wait
    const Arena arena = sysone.Attach();
    return Eventually([&] {
      const ProcessTable table = arena.processes();
      for (uint32_t i = 0; i < table.lines_used(); ++i) {
        const auto info = table.Read(ProcessId{i});
        if (info && info->role == ProcessRole::kRouter) return info->heartbeat_us > now_us;
      }
      return false;
    });
  }
  // The pid of a router that is not `before`.
  static pid_t NextRouter(const InstanceUnderTest& sysone, pid_t before) {
    pid_t router = 0;
    EXPECT_TRUE(Eventually([&] {
      router = sysone.RouterPid();
      return router != 0 && router != before;
    }));
    return router;
  }
  // Kills the router while its keeper sleeps, and wakes the keeper when `meanwhile` is done.
  template <class Meanwhile>
  static void WithoutRouter(const InstanceUnderTest& sysone, const Meanwhile& meanwhile) {
    sysone.Signal(SIGSTOP);
    const pid_t router = sysone.RouterPid();
    kill(router, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !ProcessExists(router); }));
    meanwhile();
    sysone.Signal(SIGCONT);
  }

  const StubPrograms programs_;
};

TEST_F(ReattachTest, AKilledRouterIsReplacedAndItsChildrenStay) {
  InstanceUnderTest sysone(programs_, {"-dp", "2", "-asc", "2"});
  ASSERT_TRUE(GetsReady(sysone));
  const auto pids = sysone.ChildPids();
  pid_t router = sysone.RouterPid();
  ASSERT_NE(router, sysone.pid());
  for (int round = 1; round <= 5; ++round) {
    kill(router, SIGKILL);
    router = NextRouter(sysone, router);
    EXPECT_TRUE(sysone.Says("took over 4 of 4 processes", round));
    EXPECT_EQ(sysone.ChildPids(), pids);
  }
  const Arena arena = sysone.Attach();
  EXPECT_EQ(arena.metrics().Total(Counter::kRouterRestarts), 5u);
  EXPECT_EQ(arena.metrics().Total(Counter::kWorkerRestarts), 0u);
  EXPECT_EQ(arena.board().Read(GroupId{0}).incarnation, 1u);
  sysone.Signal(SIGTERM);
  EXPECT_EQ(sysone.Wait(), kExitOk);
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
  EXPECT_TRUE(sysone.LeftNothing());
  EXPECT_FALSE(sysone.Says(kReady, 2)) << "it is announced once";
}

TEST_F(ReattachTest, TheRouterTakesThePlaceOfAKilledKeeper) {
  InstanceUnderTest sysone(programs_, {"-dp", "2", "-asc", "1"});
  ASSERT_TRUE(GetsReady(sysone));
  const auto pids = sysone.ChildPids();
  const pid_t keeper = sysone.RouterPid();
  sysone.Signal(SIGKILL);
  EXPECT_EQ(sysone.Wait(), -SIGKILL);
  const pid_t router = NextRouter(sysone, keeper);
  EXPECT_TRUE(sysone.Says("took over 3 of 3 processes"));
  EXPECT_EQ(sysone.ChildPids(), pids);
  EXPECT_EQ(sysone.Attach().metrics().Total(Counter::kKeeperRestarts), 1u);

  // Once more, so that children are the keeper's no longer.
  kill(keeper, SIGKILL);
  NextRouter(sysone, router);
  EXPECT_TRUE(sysone.Says("took over 3 of 3 processes", 2));
  EXPECT_EQ(sysone.ChildPids(), pids);
  EXPECT_TRUE(sysone.Says(kReadyAgain, 2));
  kill(sysone.ChildPid(kWorker, 1), SIGKILL);
  EXPECT_TRUE(sysone.Says(kReadyAgain, 3));
  kill(router, SIGTERM);  // the keeper now
  EXPECT_TRUE(Eventually([&] { return !ProcessExists(router); }));
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST_F(ReattachTest, ANewRouterReplacesChildrenThatDieUnderIt) {
  InstanceUnderTest sysone(programs_, {"-dp", "2", "-asc", "1"});
  ASSERT_TRUE(GetsReady(sysone));
  const pid_t router = sysone.RouterPid();
  kill(router, SIGKILL);
  ASSERT_TRUE(sysone.Says(kReadyAgain));
  const pid_t worker = sysone.ChildPid(kWorker, 1);
  const pid_t other = sysone.ChildPid(kWorker, 0);
  kill(worker, SIGKILL);
  ASSERT_TRUE(sysone.Says(kReadyAgain, 2));
  const pid_t api_server = sysone.ChildPid(kApi, 0);
  kill(api_server, SIGKILL);
  ASSERT_TRUE(sysone.Says(kReadyAgain, 3));
  EXPECT_NE(sysone.ChildPid(kWorker, 1), worker);
  EXPECT_NE(sysone.ChildPid(kApi, 0), api_server);
  EXPECT_EQ(sysone.ChildPid(kWorker, 0), other);
  // Its own children it knows as any router does.
  kill(sysone.ChildPid(kWorker, 1), SIGKILL);
  ASSERT_TRUE(sysone.Says(kReadyAgain, 4));
  EXPECT_TRUE(sysone.Says("ended with signal 9 (Killed)", 2));
}

TEST_F(ReattachTest, WhoDiesWhileThereIsNoRouterIsReplacedByTheNext) {
  programs_.Tell(kApi, "hold");
  programs_.Tell(kWorker, "hold");
  InstanceUnderTest sysone(programs_, {"-dp", "2", "-asc", "1"});
  ASSERT_TRUE(GetsReady(sysone));
  Arena arena = sysone.Attach();
  const auto jobs = [&arena](SlotState state) {
    int count = 0;
    for (uint32_t i = 0; i < arena.slots().slot_count(); ++i)
      count += arena.slots().word(i).state == state;
    return count;
  };
  ASSERT_TRUE(Eventually([&] { return jobs(SlotState::kRunning) == 1; }));
  const pid_t worker = sysone.ChildPid(kWorker, 0);
  const pid_t other = sysone.ChildPid(kWorker, 1);
  WithoutRouter(sysone, [&] {
    kill(worker, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !ProcessExists(worker); }));
  });
  ASSERT_TRUE(sysone.Says(kReadyAgain));
  EXPECT_TRUE(sysone.Says("took over 2 of 3 processes"));
  EXPECT_EQ(jobs(SlotState::kReturned), 1) << "its job is given back";
  EXPECT_NE(sysone.ChildPid(kWorker, 0), worker);
  EXPECT_EQ(sysone.ChildPid(kWorker, 1), other);
}

TEST_F(ReattachTest, AStuckRouterIsReplaced) {
  InstanceUnderTest sysone(programs_, {"--stuck-after", "2"});
  ASSERT_TRUE(GetsReady(sysone));
  const auto pids = sysone.ChildPids();
  const pid_t router = sysone.RouterPid();
  kill(router, SIGSTOP);
  EXPECT_TRUE(sysone.Says("the router (pid " + std::to_string(router) + ") is stuck"));
  NextRouter(sysone, router);
  EXPECT_TRUE(sysone.Says("took over 2 of 2 processes"));
  EXPECT_EQ(sysone.ChildPids(), pids);
}

TEST_F(ReattachTest, AStopRequestWithoutARouterIsObeyedByTheNext) {
  InstanceUnderTest sysone(programs_, {});
  ASSERT_TRUE(GetsReady(sysone));
  const auto pids = sysone.ChildPids();
  WithoutRouter(sysone, [&] { sysone.Signal(SIGTERM); });
  EXPECT_EQ(sysone.Wait(), kExitOk);
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST_F(ReattachTest, ARouterThatIsKilledInADrainIsFollowedByOneThatGoesOnWithIt) {
  programs_.Tell(kApi, "deaf");
  InstanceUnderTest sysone(programs_, {"--shutdown-timeout", "1"});
  ASSERT_TRUE(GetsReady(sysone));
  const auto pids = sysone.ChildPids();
  sysone.Signal(SIGTERM);
  ASSERT_TRUE(sysone.Says("asked to stop"));
  kill(sysone.RouterPid(), SIGKILL);
  EXPECT_EQ(sysone.Wait(), kExitOk);
  EXPECT_TRUE(sysone.Says("--shutdown-timeout is over"));
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST_F(ReattachTest, AKeeperThatIsKilledInADrainLeavesNothingEither) {
  programs_.Tell(kApi, "deaf");
  InstanceUnderTest sysone(programs_, {"--shutdown-timeout", "1"});
  ASSERT_TRUE(GetsReady(sysone));
  const auto pids = sysone.ChildPids();
  const pid_t keeper = sysone.RouterPid();
  sysone.Signal(SIGTERM);
  ASSERT_TRUE(sysone.Says("asked to stop"));
  sysone.Signal(SIGKILL);
  EXPECT_EQ(sysone.Wait(), -SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !ProcessExists(keeper); }));
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST_F(ReattachTest, ASignalToKeeperAndRouterIsOneRequestToStop) {
  programs_.Tell(kApi, "deaf");
  InstanceUnderTest sysone(programs_, {"--shutdown-timeout", "0.5"});
  ASSERT_TRUE(GetsReady(sysone));
  kill(sysone.RouterPid(), SIGTERM);
  sysone.Signal(SIGTERM);
  EXPECT_EQ(sysone.Wait(), kExitOk);
  EXPECT_TRUE(sysone.Says("--shutdown-timeout is over"));
  EXPECT_EQ(sysone.output().find("asked again"), std::string::npos);
}

TEST_F(ReattachTest, TheTimeToGetReadyCountsFromTheFirstRouter) {
  programs_.Tell(kWorker, "hang");
  InstanceUnderTest sysone(programs_, {"--ready-timeout", "2"});
  ASSERT_TRUE(sysone.Says("worker 0: loading weights"));
  kill(sysone.RouterPid(), SIGKILL);
  EXPECT_EQ(sysone.Wait(), kExitFailure);
  EXPECT_TRUE(sysone.Says("took over 2 of 2 processes"));
  EXPECT_TRUE(sysone.Says("not ready after 2 s (--ready-timeout): worker 0"));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST_F(ReattachTest, AProcessThatNoRouterRemembersIsEnded) {
  InstanceUnderTest sysone(programs_, {});
  ASSERT_TRUE(GetsReady(sysone));
  const pid_t stray = fork();
  if (stray == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Arena arena = sysone.Attach();
    SYSONE_CHECK(arena.Register(kApi, 1).ok(), "not registered");
    for (;;) pause();
  }
  ASSERT_TRUE(Eventually([&] { return sysone.ChildPid(kApi, 1) == stray; }));
  kill(sysone.RouterPid(), SIGKILL);
  int wait_status = 0;
  ASSERT_EQ(waitpid(stray, &wait_status, 0), stray);
  EXPECT_TRUE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL);
  EXPECT_TRUE(sysone.Says(kReadyAgain));
}

}  // namespace
}  // namespace sysone
