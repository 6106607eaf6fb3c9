// Identities, registration, recovery, and whose turn it is to accept.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/process_table.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <random>
#include <thread>

#include "shm_arena/accept_turn.h"
#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

TEST(ProcessIdentityTest, AProcessIsAliveUntilItEndsAndAZombieIsDead) {
  int held_open[2];
  ASSERT_EQ(pipe(held_open), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(held_open[1]);
    char byte;
    (void)!read(held_open[0], &byte, 1);  // until the parent closes its end
    _exit(0);
  }
  const ProcessIdentity identity = IdentityOfPid(child);
  EXPECT_EQ(identity.pid(), child);
  EXPECT_TRUE(IdentityAlive(identity));
  EXPECT_FALSE(IdentityAlive({identity.word + 1}))
      << "the same pid with another start time is another process";
  close(held_open[0]);
  close(held_open[1]);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(IdentityAlive(identity)) << "a zombie";
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(IdentityAlive(identity));
}

TEST(ProcessIdentityTest, NobodyIsNotAlive) {
  EXPECT_FALSE(IdentityAlive({}));
  EXPECT_FALSE(IdentityAlive(DeadIdentity()));
  EXPECT_EQ(CurrentProcessIdentity().pid(), getpid());
}

TEST(ProcessTableTest, ALineTellsWhatItsLeaseSet) {
  Arena arena = Arena::InMemory(SmallConfig());
  ASSERT_TRUE(arena.Register(ProcessRole::kApiServer, 3).ok());
  const ProcessTable table = arena.processes();
  ProcessInfo info = *table.Read(arena.self());
  EXPECT_EQ(info.phase, ProcessPhase::kStarting);
  EXPECT_EQ(info.role, ProcessRole::kApiServer);
  EXPECT_EQ(info.role_index, 3u);
  EXPECT_EQ(info.identity, CurrentProcessIdentity());
  arena.lease().Beat(123);
  arena.lease().SetPhase(ProcessPhase::kReady);
  arena.lease().SetProgress(999);
  arena.lease().AddConnections(5);
  arena.lease().AddConnections(-2);
  arena.lease().AddInFlight(4);
  info = *table.Read(arena.self());
  EXPECT_EQ(info.heartbeat_us, 123);
  EXPECT_EQ(info.phase, ProcessPhase::kReady);
  EXPECT_EQ(info.progress, 999u);
  EXPECT_EQ(info.open_connections, 3u);
  EXPECT_EQ(info.in_flight, 4u);
}

TEST(ProcessTableTest, AnEndedLeaseIsNotAliveAndItsLineIsFreedClean) {
  Arena arena = Arena::InMemory(SmallConfig());
  ProcessId id = ProcessId::kNone;
  {
    Result<ProcessLease> lease =
        ProcessLease::Take(arena.processes(), ProcessRole::kApiServer, 0, 1);
    id = lease->id();
    lease->AddConnections(3);
    EXPECT_TRUE(arena.processes().Alive(id));
  }
  EXPECT_FALSE(arena.processes().Alive(id));
  EXPECT_EQ(arena.processes().Read(id)->phase, ProcessPhase::kExited);
  EXPECT_EQ(arena.RecoverDead().size(), 1u);
  EXPECT_FALSE(arena.processes().Read(id));
  EXPECT_EQ(AddProcess(arena, ProcessRole::kWorker, 0), id);
  EXPECT_EQ(arena.processes().Read(id)->open_connections, 0u);
}

TEST(ProcessTableTest, AFullTableRefusesTheNextProcess) {
  Arena arena = Arena::InMemory(SmallConfig());
  for (uint32_t i = 0; i < kMaxProcesses; ++i) AddProcess(arena, ProcessRole::kApiServer, i);
  EXPECT_EQ(arena.Register(ProcessRole::kApiServer, 0).code(), Code::kUnavailable);
}

TEST(ProcessTableTest, ThreadsThatRegisterAtOnceGetDifferentLines) {
  Arena arena = Arena::InMemory(SmallConfig());
  std::vector<ProcessId> ids(kMaxProcesses);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = t; i < kMaxProcesses; i += 4)
        ids[i] = AddProcess(arena, ProcessRole::kApiServer, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (uint32_t i = 0; i < kMaxProcesses; ++i)
    EXPECT_EQ(arena.processes().Read(ids[i])->role_index, i);
}

TEST(RecoverDeadTest, TakesBackSlotsAndLoadOfTheDeadAndLeavesTheLivingAlone) {
  Arena arena = Arena::InMemory(SmallConfig());
  const ProcessId living = AddProcess(arena, ProcessRole::kApiServer, 0);
  const ProcessId dead = AddProcess(arena, ProcessRole::kApiServer, 1, /*alive=*/false);
  arena.board().StartGroup(kGroup0);
  for (const ProcessId owner : {living, dead}) {
    arena.board().Add(owner, kGroup0, 100);
    ASSERT_TRUE(arena.slots().Publish(*arena.slots().Claim(owner, 1), kGroup0, {}));
  }
  arena.board().GroupReady(kGroup0, AddProcess(arena, ProcessRole::kWorker, 0), 100);
  const std::vector<Arena::Recovered> found = arena.RecoverDead();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].process.id, dead);
  EXPECT_EQ(found[0].slots, 1u);
  EXPECT_EQ(arena.slots().InUse(), 1u);
  EXPECT_EQ(arena.board().Read(kGroup0).outstanding_tokens, 100);
  EXPECT_EQ(arena.board().State(kGroup0), GroupState::kReady);
  EXPECT_TRUE(arena.RecoverDead().empty());
}

TEST(RecoverDeadTest, AJobPublishedToAGroupThatIsDownComesBack) {
  Arena arena = Arena::InMemory(SmallConfig());
  const ProcessId owner = AddProcess(arena, ProcessRole::kApiServer, 0);
  arena.board().StartGroup(kGroup0);
  const SlotHandle slot = *arena.slots().Claim(owner, 1);
  ASSERT_TRUE(arena.slots().Publish(slot, kGroup0, {}));
  arena.RecoverDead();
  EXPECT_EQ(arena.slots().Look(slot).state, SlotState::kReturned);
}

// ---- accept turns ----

ProcessId P(uint32_t index) { return static_cast<ProcessId>(index); }

TEST(AcceptTurnTest, TheFewestConnectionsThenTheFewestRequestsThenTheLowestLineIsInTurn) {
  EXPECT_EQ(LeastLoaded({}), ProcessId::kNone);
  const std::vector<AcceptCandidate> by_connections = {{P(4), 3, 0}, {P(2), 1, 9}, {P(7), 2, 0}};
  EXPECT_EQ(LeastLoaded(by_connections), P(2));
  const std::vector<AcceptCandidate> by_requests = {{P(4), 1, 2}, {P(2), 1, 9}, {P(7), 1, 1}};
  EXPECT_EQ(LeastLoaded(by_requests), P(7));
  const std::vector<AcceptCandidate> equal = {{P(4), 1, 1}, {P(2), 1, 1}, {P(7), 1, 1}};
  EXPECT_EQ(LeastLoaded(equal), P(2));
  EXPECT_TRUE(MayAccept(equal, P(2), 0));
  EXPECT_FALSE(MayAccept(equal, P(4), kAcceptPatienceUs - 1));
  EXPECT_TRUE(MayAccept(equal, P(4), kAcceptPatienceUs)) << "the one in turn may be stuck";
}

TEST(AcceptTurnTest, KeepAliveClientsThatComeAndGoStayWithinOneOfEachOther) {
  Arena arena = Arena::InMemory(SmallConfig());
  AddProcess(arena, ProcessRole::kWorker, 0);
  AddProcess(arena, ProcessRole::kApiServer, 9);  // starting: takes no part
  std::vector<ProcessId> servers;
  for (uint32_t i = 0; i < 4; ++i) {
    servers.push_back(AddProcess(arena, ProcessRole::kApiServer, i));
    arena.processes().entry(servers[i]).phase.store(static_cast<uint32_t>(ProcessPhase::kReady));
  }
  std::vector<AcceptTurn> turns;
  for (const ProcessId id : servers)
    turns.emplace_back(arena.processes(), arena.accept_region(), id);
  std::vector<size_t> clients;  // the server of each
  for (int n = 0; n < 103; ++n) {
    std::vector<size_t> willing;
    for (size_t s = 0; s < turns.size(); ++s) {
      if (turns[s].MayAccept(0)) willing.push_back(s);
    }
    ASSERT_EQ(willing.size(), 1u) << "exactly one accepts";
    turns[willing[0]].Opened();
    clients.push_back(willing[0]);
    uint32_t least = UINT32_MAX, most = 0;
    for (const ProcessId id : servers) {
      const uint32_t open = arena.processes().Read(id)->open_connections;
      least = std::min(least, open);
      most = std::max(most, open);
    }
    EXPECT_LE(most - least, 1u);
  }
  // One server loses all its clients: the next ones all go there.
  uint32_t lost = 0;
  for (const size_t server : clients) {
    if (server != 2) continue;
    turns[2].Closed();
    ++lost;
  }
  for (uint32_t n = 0; n < lost; ++n) {
    ASSERT_TRUE(turns[2].MayAccept(0));
    turns[2].Opened();
  }
}

TEST(AcceptTurnTest, AWaitingServerIsWokenByAChangeAndMissesNone) {
  Arena arena = Arena::InMemory(SmallConfig());
  const ProcessId a = AddProcess(arena, ProcessRole::kApiServer, 0);
  const ProcessId b = AddProcess(arena, ProcessRole::kApiServer, 1);
  AcceptTurn mine(arena.processes(), arena.accept_region(), a);
  AcceptTurn other(arena.processes(), arena.accept_region(), b);
  const int64_t start_us = MonotonicUs();
  uint32_t seen = mine.sequence();
  other.Opened();  // between the look and the wait
  mine.WaitForChange(seen, start_us + 60'000'000);
  seen = mine.sequence();
  std::thread later([&] { other.Closed(); });
  while (mine.sequence() == seen) mine.WaitForChange(seen, start_us + 60'000'000);
  later.join();
  EXPECT_LT(MonotonicUs() - start_us, 30'000'000);
  mine.WaitForChange(mine.sequence(), MonotonicUs() + 1'000);  // ends by itself
}

}  // namespace
}  // namespace sysone
