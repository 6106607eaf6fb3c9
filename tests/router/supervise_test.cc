// `sysone serve` as a program, with stub children: start, death of every kind, and stop.
// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "base/exit_codes.h"
#include "router/listener.h"
#include "tests/router/instance_under_test.h"

namespace sysone {
namespace {

using Flags = std::vector<std::string>;
constexpr ProcessRole kWorker = ProcessRole::kWorker;
constexpr ProcessRole kApi = ProcessRole::kApiServer;
constexpr char kReady[] = "sysone is ready on http://127.0.0.1:";
constexpr char kReadyAgain[] = "everything is ready again";

// True when a connection to the port in the ready line is accepted by the kernel.
bool Connects(const std::string& output) {
  const size_t at = output.find(kReady);
  if (at == std::string::npos) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(output.substr(at + sizeof kReady - 1))));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return connected;
}

void ExpectGone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_FALSE(ProcessExists(pid)) << pid;
}

TEST(Serve, BecomesReadyAndLeavesNothingAfterSigterm) {
  const StubPrograms programs;
  InstanceUnderTest sysone(programs, {"-asc", "2", "-dp", "2"});
  ASSERT_TRUE(sysone.Says(kReady));
  EXPECT_TRUE(sysone.Says("(model qwen3, 2 API servers, 2 groups)"));
  EXPECT_TRUE(sysone.Says("worker 1: ready"));
  EXPECT_TRUE(Connects(sysone.output()));
  const auto pids = sysone.ChildPids();
  EXPECT_EQ(pids.size(), 4u);
  sysone.Signal(SIGTERM);
  EXPECT_EQ(sysone.Wait(), kExitOk);
  ExpectGone(pids);
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, ReplacesAKilledWorkerWhileTheOthersStay) {
  const StubPrograms programs;
  InstanceUnderTest sysone(programs, {"-dp", "2", "-asc", "1"});
  ASSERT_TRUE(sysone.Says(kReady));
  const pid_t worker = sysone.ChildPid(kWorker, 1);
  const pid_t other = sysone.ChildPid(kWorker, 0);
  kill(worker, SIGKILL);
  ASSERT_TRUE(sysone.Says(kReadyAgain));
  EXPECT_TRUE(
      sysone.Says("worker 1 (pid " + std::to_string(worker) + ") ended with signal 9 (Killed)"));
  EXPECT_NE(sysone.ChildPid(kWorker, 1), worker);
  EXPECT_EQ(sysone.ChildPid(kWorker, 0), other);
  const Arena arena = sysone.Attach();
  EXPECT_EQ(arena.metrics().Total(Counter::kWorkerRestarts), 1u);
  EXPECT_EQ(arena.board().Read(GroupId{1}).incarnation, 2u);
  EXPECT_EQ(arena.board().Read(GroupId{0}).incarnation, 1u);
}

TEST(Serve, ReclaimsWhatAKilledApiServerHeld) {
  const StubPrograms programs;
  programs.Tell(kApi, "hold");
  InstanceUnderTest sysone(programs, {});
  ASSERT_TRUE(sysone.Says(kReady));
  Arena arena = sysone.Attach();
  ASSERT_TRUE(Eventually([&] { return arena.slots().InUse() == 1; }));
  programs.Tell(kApi, "ready");
  kill(sysone.ChildPid(kApi, 0), SIGKILL);
  ASSERT_TRUE(sysone.Says(kReadyAgain));
  EXPECT_EQ(arena.slots().InUse(), 0u);
  EXPECT_EQ(arena.metrics().Total(Counter::kApiServerRestarts), 1u);
}

TEST(Serve, GivesTheJobsOfAKilledWorkerBackToTheirOwner) {
  const StubPrograms programs;
  programs.Tell(kApi, "hold");
  programs.Tell(kWorker, "hold");
  InstanceUnderTest sysone(programs, {"-dp", "2", "-asc", "1"});
  ASSERT_TRUE(sysone.Says(kReady));
  Arena arena = sysone.Attach();
  const auto any = [&arena](SlotState state) {
    for (uint32_t i = 0; i < arena.slots().slot_count(); ++i)
      if (arena.slots().word(i).state == state) return true;
    return false;
  };
  ASSERT_TRUE(Eventually([&] { return any(SlotState::kRunning); }));
  kill(sysone.ChildPid(kWorker, 0), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return any(SlotState::kReturned); }));
  EXPECT_TRUE(sysone.Says(kReadyAgain));
}

TEST(Serve, AChildThatDiesAgainAndAgainBeforeItWasReadyIsAnError) {
  const StubPrograms programs;
  programs.Tell(kWorker, "crash");
  InstanceUnderTest sysone(programs, {});
  EXPECT_EQ(sysone.Wait(), kExitFailure);
  EXPECT_TRUE(sysone.Says("worker 0 ended with exit status 1 before it was ever ready"));
  EXPECT_TRUE(sysone.Says("starting it again", 2));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, AnEndThatNoRetryHelpsIsAnErrorAtOnce) {
  const StubPrograms programs;
  programs.Tell(kApi, "setup");
  InstanceUnderTest sysone(programs, {});
  EXPECT_EQ(sysone.Wait(), kExitSetup);
  EXPECT_TRUE(sysone.Says("API server 0 ended with exit status 3"));
  EXPECT_EQ(sysone.output().find("starting it again"), std::string::npos);
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, AChildThatCrashesLaterIsTriedUntilItWorks) {
  const StubPrograms programs;
  InstanceUnderTest sysone(programs, {});
  ASSERT_TRUE(sysone.Says(kReady));
  programs.Tell(kWorker, "crash");
  kill(sysone.ChildPid(kWorker, 0), SIGKILL);
  ASSERT_TRUE(sysone.Says("starting it again", 4));
  programs.Tell(kWorker, "ready");
  EXPECT_TRUE(sysone.Says(kReadyAgain));
}

TEST(Serve, AStuckChildIsReplaced) {
  const StubPrograms programs;
  programs.Tell(kWorker, "silent");
  InstanceUnderTest sysone(programs, {"--stuck-after", "2"});
  ASSERT_TRUE(sysone.Says(kReady));
  programs.Tell(kWorker, "ready");
  EXPECT_TRUE(sysone.Says("worker 0 (pid"));
  ASSERT_TRUE(sysone.Says(kReadyAgain));
  EXPECT_TRUE(sysone.Says("is stuck: no heartbeat for"));
}

TEST(Serve, NamesWhoIsMissingWhenItIsNotReadyInTime) {
  const StubPrograms programs;
  programs.Tell(kWorker, "hang");
  InstanceUnderTest sysone(programs, {"--ready-timeout", "1"});
  EXPECT_EQ(sysone.Wait(), kExitFailure);
  EXPECT_TRUE(
      sysone.Says("not ready after 1 s (--ready-timeout): worker 0 (loading weights, 50 %)"));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, ASecondSignalEndsDeafChildrenAtOnce) {
  const StubPrograms programs;
  programs.Tell(kApi, "deaf");
  InstanceUnderTest sysone(programs, {"--shutdown-timeout", "1000"});
  ASSERT_TRUE(sysone.Says(kReady));
  const auto pids = sysone.ChildPids();
  sysone.Signal(SIGTERM);
  ASSERT_TRUE(sysone.Says("asked to stop"));
  sysone.Signal(SIGINT);
  EXPECT_EQ(sysone.Wait(), kExitOk);
  ExpectGone(pids);
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, KillsDeafChildrenWhenTheShutdownTimeoutIsOver) {
  const StubPrograms programs;
  programs.Tell(kApi, "deaf");
  InstanceUnderTest sysone(programs, {"--shutdown-timeout", "0.5"});
  ASSERT_TRUE(sysone.Says(kReady));
  const auto pids = sysone.ChildPids();
  sysone.Signal(SIGINT);
  EXPECT_EQ(sysone.Wait(), kExitOk);
  EXPECT_TRUE(sysone.Says("--shutdown-timeout is over"));
  ExpectGone(pids);
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, APortInUseIsOneClearLine) {
  const StubPrograms programs;
  const auto taken = Listener::Bind("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok());
  InstanceUnderTest sysone(programs, {"--port", std::to_string(taken->port())});
  EXPECT_EQ(sysone.Wait(), kExitSetup);
  EXPECT_TRUE(sysone.Says("port " + std::to_string(taken->port()) + " on 127.0.0.1 is in use"));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, ASecondInstanceOfOneNameIsRefusedAndTheFirstStays) {
  const StubPrograms programs;
  InstanceUnderTest first(programs, {});
  ASSERT_TRUE(first.Says(kReady));
  const pid_t worker = first.ChildPid(kWorker, 0);
  InstanceUnderTest second(programs, {"--instance-name", first.name()});
  EXPECT_EQ(second.Wait(), kExitSetup);
  EXPECT_TRUE(second.Says("instance '" + first.name() + "'"));
  EXPECT_EQ(first.ChildPid(kWorker, 0), worker);
  EXPECT_TRUE(ProcessExists(worker));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), kExitOk);
}

TEST(Serve, TooSmallSharedMemoryIsOneClearLine) {
  const StubPrograms programs;
  InstanceUnderTest sysone(programs, {"--shm-arena-mb", "262144"});
  EXPECT_EQ(sysone.Wait(), kExitSetup);
  EXPECT_TRUE(sysone.Says("--shm-arena-mb"));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, MissingProgramsAreAClearError) {
  const TempFolder empty;
  const StubPrograms programs;
  InstanceUnderTest sysone(programs, {"--program-dir", empty.path()});
  EXPECT_EQ(sysone.Wait(), kExitSetup);
  EXPECT_TRUE(sysone.Says("cannot start " + empty.path() + "/sysone-worker"));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, AMissingModelIsOneClearLine) {
  InstanceUnderTest sysone({"serve", "/no/such/model.gguf", "--port", "0"});
  EXPECT_EQ(sysone.Wait(), kExitSetup);
  EXPECT_TRUE(sysone.Says("/no/such/model.gguf"));
}

TEST(Serve, ATruncatedModelIsOneClearLine) {
  const TempFolder folder;
  std::filesystem::copy(SYSONE_SOURCE_DIR "/tests/golden/qwen3", folder.path() + "/model",
                        std::filesystem::copy_options::recursive);
  const std::string weights = folder.path() + "/model/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  InstanceUnderTest sysone({"serve", folder.path() + "/model", "--port", "0"});
  EXPECT_EQ(sysone.Wait(), kExitSetup);
  EXPECT_TRUE(sysone.Says("model.safetensors"));
}

TEST(Serve, AnUnknownFlagIsOneClearLine) {
  InstanceUnderTest sysone({"serve", "--prot", "1"});
  EXPECT_EQ(sysone.Wait(), kExitUsage);
  EXPECT_TRUE(sysone.Says("unknown flag --prot; did you mean --port?"));
}

TEST(Serve, TellsVersionHelpAndFlags) {
  InstanceUnderTest version({"--version"});
  EXPECT_EQ(version.Wait(), kExitOk);
  EXPECT_TRUE(version.Says("sysone 0."));
  InstanceUnderTest help({"serve", "--help"});
  EXPECT_EQ(help.Wait(), kExitOk);
  EXPECT_TRUE(help.Says("--data-parallel-size"));
  InstanceUnderTest flags({"flags", "--markdown"});
  EXPECT_EQ(flags.Wait(), kExitOk);
  EXPECT_TRUE(flags.Says("| flag | default | meaning |"));
  InstanceUnderTest nothing(Flags{});
  EXPECT_EQ(nothing.Wait(), kExitUsage);
  EXPECT_TRUE(nothing.Says("sysone serve [MODEL]"));
}

// Keeper and router at once: nobody is left who could start another router.
void KillBoth(InstanceUnderTest& sysone) {
  const pid_t router = sysone.RouterPid();
  kill(sysone.pid(), SIGSTOP);  // so that it does not notice the death of the router first
  kill(router, SIGKILL);
  sysone.Signal(SIGKILL);
  EXPECT_EQ(sysone.Wait(), -SIGKILL);
}

TEST(Serve, WithoutKeeperAndRouterChildrenEndAndTheLastOneRemovesTheNames) {
  const StubPrograms programs;
  InstanceUnderTest sysone(programs, {"-dp", "2", "-asc", "2"});
  ASSERT_TRUE(sysone.Says(kReady));
  const auto pids = sysone.ChildPids();
  KillBoth(sysone);
  EXPECT_TRUE(Eventually([&] { return std::none_of(pids.begin(), pids.end(), ProcessExists); }));
  EXPECT_TRUE(sysone.LeftNothing());
}

TEST(Serve, ANewInstanceEndsWhatKilledKeeperAndRouterLeftAndServes) {
  const StubPrograms programs;
  InstanceUnderTest first(programs, {"-dp", "2"});
  ASSERT_TRUE(first.Says(kReady));
  const auto pids = first.ChildPids();
  KillBoth(first);
  InstanceUnderTest second(programs, {"--instance-name", first.name()});
  ASSERT_TRUE(second.Says(kReady));
  ExpectGone(pids);
  second.Signal(SIGTERM);
  EXPECT_EQ(second.Wait(), kExitOk);
  EXPECT_TRUE(second.LeftNothing());
}

}  // namespace
}  // namespace sysone
