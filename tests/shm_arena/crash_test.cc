// Processes that are killed between every two steps of their work. A child counts the places it passes and kills itself
// at the n-th; the test runs n = 0, 1, 2 … until a child survives all, so no place can be forgotten.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

// Counts places; at the last one the process dies as by a crash: nothing is unwound.
class Script {
 public:
  explicit Script(int die_at) : left_(die_at) {}
  void Here() {
    if (left_-- == 0) kill(getpid(), SIGKILL);
  }
  static void Hook(void* script, SlotStep) { static_cast<Script*>(script)->Here(); }

 private:
  int left_;
};

struct Ended {
  bool killed = false;
};

pid_t Fork(const std::function<void()>& child) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  child();
  _exit(0);
}

Ended WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "the child failed: " << status;
  return {WIFSIGNALED(status)};
}

bool Until(const std::function<bool()>& condition) {
  const int64_t deadline_us = Soon();
  while (!condition()) {
    if (MonotonicUs() > deadline_us) return false;
    std::this_thread::yield();
  }
  return true;
}

void ExpectNothingLeft(Arena& arena) {
  EXPECT_EQ(arena.slots().InUse(), 0u);
  const BoardSnapshot board = arena.board().Snapshot();
  for (const GroupLoad& group : board.groups) {
    EXPECT_EQ(group.outstanding_jobs, 0);
    EXPECT_EQ(group.outstanding_tokens, 0);
  }
}

uint64_t& Word(Arena& arena, SlotHandle slot, size_t index) {
  return reinterpret_cast<uint64_t*>(arena.slots().payload(slot).data())[index];
}

// ---- API servers that die ----

enum class WorkerBehaviour { kAnswersAtOnce, kAnswersAfterTheDeath, kTakesNothing };

// What an API server does with one job, with a place to die after every step.
void ServeOneRequest(Arena& arena, Script& script, WorkerBehaviour worker) {
  script.Here();
  if (!arena.Register(ProcessRole::kApiServer, 7).ok()) _exit(2);
  arena.slots().SetStepHook(&Script::Hook, &script);
  script.Here();
  const Result<SlotHandle> slot = arena.slots().Claim(arena.self(), 4096);
  if (!slot.ok()) _exit(3);
  script.Here();
  Word(arena, *slot, 0) = 1;
  script.Here();
  Word(arena, *slot, 1) = 2;
  script.Here();
  {
    const OutstandingLoad load(arena.board(), arena.self(), kGroup0, 50);
    script.Here();
    if (!arena.slots().Publish(*slot, kGroup0, {})) _exit(4);
    script.Here();
    if (worker == WorkerBehaviour::kAnswersAtOnce) {
      if (WaitForEnd(arena, arena.self(), *slot, Soon()).state != SlotState::kDone) _exit(5);
      script.Here();
      if (Word(arena, *slot, 2) != 3) _exit(6);
    } else if (worker == WorkerBehaviour::kAnswersAfterTheDeath) {
      if (!Until([&] { return arena.slots().word(slot->index).state == SlotState::kRunning; }))
        _exit(7);
      script.Here();
    }
    script.Here();
  }
  script.Here();
  arena.slots().Release(*slot);
  script.Here();
}

// Returns whether the child was killed.
bool CrashAnApiServer(int die_at, WorkerBehaviour behaviour) {
  Arena arena = Arena::InMemory(SmallConfig());
  arena.board().StartGroup(kGroup0);
  const ProcessId worker = AddProcess(arena, ProcessRole::kWorker, 0);
  arena.board().GroupReady(kGroup0, worker, 1000);
  const pid_t child = Fork([&] {
    Script script(die_at);
    ServeOneRequest(arena, script, behaviour);
  });
  std::vector<SlotHandle> running;
  std::atomic<bool> stop{false};
  std::thread work([&] {
    while (!stop.load() && behaviour != WorkerBehaviour::kTakesNothing) {
      for (const SlotHandle slot : arena.slots().ReadySlots(kGroup0)) {
        if (!arena.slots().Take(slot, kGroup0)) continue;
        running.push_back(slot);
        if (behaviour == WorkerBehaviour::kAnswersAfterTheDeath) continue;
        Word(arena, slot, 2) = 3;
        arena.slots().Complete(slot);
      }
      std::this_thread::yield();
    }
  });
  const bool killed = WaitFor(child).killed;
  arena.RecoverDead();
  stop.store(true);
  work.join();
  for (const SlotHandle slot : running) {
    // The worker's slot is its own until it is through with it, whatever became of the owner.
    if (behaviour == WorkerBehaviour::kAnswersAfterTheDeath) {
      EXPECT_EQ(arena.slots().word(slot.index).state, SlotState::kAbandoned);
      EXPECT_FALSE(arena.slots().Wanted(slot));
    }
    EXPECT_FALSE(arena.slots().Complete(slot));
  }
  EXPECT_TRUE(arena.slots().ReadySlots(kGroup0).empty());
  ExpectNothingLeft(arena);
  for (uint32_t i = 0; i < arena.processes().lines_used(); ++i) {
    const auto info = arena.processes().Read(static_cast<ProcessId>(i));
    EXPECT_TRUE(!info || info->role == ProcessRole::kWorker)
        << "the line of the dead API server is still taken";
  }
  return killed;
}

class ApiServerCrash : public testing::TestWithParam<WorkerBehaviour> {};

TEST_P(ApiServerCrash, LeavesNothingBehindWhereverItDies) {
  int places = 0;
  for (bool killed = true; killed; ++places) {
    SCOPED_TRACE("dies at place " + std::to_string(places));
    killed = CrashAnApiServer(places, GetParam());
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GE(places, 14);
}

INSTANTIATE_TEST_SUITE_P(All, ApiServerCrash,
                         testing::Values(WorkerBehaviour::kAnswersAtOnce,
                                         WorkerBehaviour::kAnswersAfterTheDeath,
                                         WorkerBehaviour::kTakesNothing));

// ---- workers that die ----

void WorkOnOneJob(Arena& arena, Script& script) {
  script.Here();
  if (!arena.Register(ProcessRole::kWorker, 0).ok()) _exit(2);
  arena.slots().SetStepHook(&Script::Hook, &script);
  script.Here();
  arena.board().GroupReady(kGroup0, arena.self(), 1000);
  script.Here();
  std::vector<SlotHandle> ready;
  if (!Until([&] { return !(ready = arena.slots().ReadySlots(kGroup0)).empty(); })) _exit(3);
  script.Here();
  if (!arena.slots().Take(ready[0], kGroup0)) _exit(4);
  script.Here();
  Word(arena, ready[0], 2) = Word(arena, ready[0], 0) + 1;
  script.Here();
  Word(arena, ready[0], 3) += 1;
  script.Here();
  if (!arena.slots().Complete(ready[0])) _exit(5);
  script.Here();
  arena.board().RecordBatch(kGroup0, 1, 50, 100);
  script.Here();
}

TEST(WorkerCrash, TheWaitingOwnerGetsExactlyOneAnswerWhereverTheWorkerDies) {
  int places = 0;
  for (bool killed = true; killed; ++places) {
    SCOPED_TRACE("dies at place " + std::to_string(places));
    Arena arena = Arena::InMemory(SmallConfig());
    const ProcessId owner = AddProcess(arena, ProcessRole::kApiServer, 0);
    arena.board().StartGroup(kGroup0);
    const pid_t child = Fork([&] {
      Script script(places);
      WorkOnOneJob(arena, script);
    });
    arena.board().StartGroup(kGroup1);
    arena.board().GroupReady(kGroup1, AddProcess(arena, ProcessRole::kWorker, 1), 1000);

    std::atomic<bool> recovered{false}, stop{false};
    std::atomic<int> answers{0};
    std::thread survivor([&] {  // the worker of the other group
      while (!stop.load()) {
        for (const SlotHandle slot : arena.slots().ReadySlots(kGroup1)) {
          if (!arena.slots().Take(slot, kGroup1)) continue;
          Word(arena, slot, 2) = Word(arena, slot, 0) + 1;
          arena.slots().Complete(slot);
        }
        std::this_thread::yield();
      }
    });
    std::thread client([&] {
      const SlotHandle slot = *arena.slots().Claim(owner, 4096);
      Word(arena, slot, 0) = 41;
      Word(arena, slot, 2) = 0;
      Word(arena, slot, 3) = 0;
      EXPECT_TRUE(Until(
          [&] { return arena.board().State(kGroup0) == GroupState::kReady || recovered.load(); }));
      GroupId group = arena.board().State(kGroup0) == GroupState::kReady ? kGroup0 : kGroup1;
      for (;;) {
        const OutstandingLoad load(arena.board(), owner, group, 50);
        if (!arena.slots().Publish(slot, group, {})) break;
        const SlotState state = WaitForEnd(arena, owner, slot, Soon()).state;
        if (state == SlotState::kDone && Word(arena, slot, 2) == 42) answers.fetch_add(1);
        if (state != SlotState::kReturned || !arena.slots().TakeBack(slot)) break;
        group = kGroup1;
      }
      arena.slots().Release(slot);
    });
    killed = WaitFor(child).killed;
    arena.RecoverDead();
    recovered.store(true);
    // A job that the client published after the death, before it could know.
    const bool ended = Until([&] {
      arena.RecoverDead();
      return arena.slots().InUse() == 0 && answers.load() > 0;
    });
    client.join();
    stop.store(true);
    survivor.join();
    EXPECT_TRUE(ended);
    EXPECT_EQ(answers.load(), 1);
    EXPECT_NE(arena.board().State(kGroup0), GroupState::kReady);
    ExpectNothingLeft(arena);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GE(places, 12);
}

TEST(WorkerCrash, ASecondWorkerOfAGroupIsRefusedUntilTheFirstOneIsClearedAway) {
  Arena arena = Arena::InMemory(SmallConfig());
  arena.board().StartGroup(kGroup0);
  const auto start_worker = [&] {
    return WaitFor(Fork([&] {
      if (!arena.Register(ProcessRole::kWorker, 0).ok()) return;  // ends well
      arena.board().GroupReady(kGroup0, arena.self(), 1000);
      kill(getpid(), SIGKILL);
    }));
  };
  EXPECT_TRUE(start_worker().killed);   // registered, then died
  EXPECT_FALSE(start_worker().killed);  // refused
  const size_t dead = arena.RecoverDead().size();
  EXPECT_EQ(dead, 2u);
  EXPECT_EQ(arena.board().State(kGroup0), GroupState::kDead);
  EXPECT_TRUE(start_worker().killed);  // registered again
}

// ---- routers that die ----

TEST(RouterCrash, AnOwnerIsNotLeftSleepingAndTheNextRouterFinishesTheWork) {
  int places = 0;
  for (bool killed = true; killed; ++places) {
    SCOPED_TRACE("dies at place " + std::to_string(places));
    Arena arena = Arena::InMemory(SmallConfig());
    const ProcessId owner = AddProcess(arena, ProcessRole::kApiServer, 0);
    const ProcessId worker = AddProcess(arena, ProcessRole::kWorker, 0, /*alive=*/false);
    arena.board().StartGroup(kGroup0);
    arena.board().GroupReady(kGroup0, worker, 1000);
    SlotHandle slots[3];
    for (SlotHandle& slot : slots) {
      slot = *arena.slots().Claim(owner, 100);
      ASSERT_TRUE(arena.slots().Publish(slot, kGroup0, {}));
    }
    ASSERT_TRUE(arena.slots().Take(slots[1], kGroup0));
    const pid_t child = Fork([&] {
      Script script(places);
      script.Here();
      arena.slots().SetStepHook(&Script::Hook, &script);
      arena.RecoverDead();
      script.Here();
    });
    std::thread next_router([&] {
      killed = WaitFor(child).killed;
      arena.RecoverDead();
    });
    for (const SlotHandle slot : slots) {
      EXPECT_EQ(WaitForEnd(arena, owner, slot, Soon()).state, SlotState::kReturned);
      arena.slots().Release(slot);
    }
    next_router.join();
    EXPECT_EQ(arena.board().State(kGroup0), GroupState::kDead);
    ExpectNothingLeft(arena);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GE(places, 6);
}

}  // namespace
}  // namespace sysone
