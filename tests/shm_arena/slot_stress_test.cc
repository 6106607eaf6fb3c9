// Many threads on few slots, with exact accounting: owners that give up, workers that "die", a router that takes jobs
// back. Payloads are plain memory, so under the thread sanitizer this also proves the memory orders of slot_pool.cc.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

constexpr uint32_t kOwners = 4;
constexpr uint32_t kWorkers = 2;
constexpr int kJobsPerOwner = 1500;

struct TestJob {
  uint64_t id;
  uint64_t answer;
  uint64_t answered;  // how often a worker wrote an answer since the last publish
};

uint64_t AnswerOf(uint64_t id) { return id * 0x9e3779b97f4a7c15 + 1; }

// A worker that can be told to "die": it drops what it runs and touches nothing until the router has cleaned up.
struct WorkerSwitch {
  std::atomic<bool> die{false};
  std::atomic<bool> dead{false};
};

class SlotStress : public testing::Test {
 protected:
  TestJob& JobIn(SlotHandle slot) {
    return *reinterpret_cast<TestJob*>(arena_.slots().payload(slot).data());
  }

  void Own(uint32_t owner) {
    std::mt19937 random(owner + 1);
    const ProcessId id = owners_[owner];
    SlotPool& slots = arena_.slots();
    for (int n = 0; n < kJobsPerOwner; ++n) {
      Result<SlotHandle> slot = slots.Claim(id, sizeof(TestJob));
      while (!slot.ok()) {  // back-pressure: others hold all slots
        std::this_thread::yield();
        slot = slots.Claim(id, sizeof(TestJob));
      }
      claimed_.fetch_add(1);
      JobIn(*slot) = {uint64_t{owner} << 32 | static_cast<uint64_t>(n), 0, 0};
      const bool gives_up = random() % 8 == 0;
      bool waiting = true;
      while (waiting) {
        const GroupId group{static_cast<uint32_t>(random() % kWorkers)};
        JobIn(*slot).answered = 0;
        if (!slots.Publish(*slot, group, {.now_us = 1, .used_bytes = sizeof(TestJob)}))
          return Fail("publish");
        const int64_t until_us =
            gives_up ? MonotonicUs() + static_cast<int64_t>(random() % 200) : Soon();
        const SlotOutcome result = WaitForEnd(arena_, id, *slot, until_us);
        switch (result.state) {
          case SlotState::kReturned:
            if (!slots.TakeBack(*slot)) return Fail("take back");
            break;  // publish again
          case SlotState::kDone:
            if (JobIn(*slot).answer != AnswerOf(JobIn(*slot).id) || JobIn(*slot).answered != 1)
              return Fail("answer");
            done_.fetch_add(1);
            waiting = false;
            break;
          case SlotState::kFailed:
            if (result.code != Code::kInternal) return Fail("code");
            failed_.fetch_add(1);
            waiting = false;
            break;
          case SlotState::kReady:
          case SlotState::kRunning:
            if (!gives_up) return Fail("a job was not answered in time");
            gave_up_.fetch_add(1);
            waiting = false;
            break;
          default:
            return Fail("state");
        }
      }
      slots.Release(*slot);
    }
    owners_left_.fetch_sub(1);
  }

  void Work(uint32_t worker) {
    std::mt19937 random(worker + 100);
    const GroupId group{worker};
    SlotPool& slots = arena_.slots();
    WorkerSwitch& life = switches_[worker];
    std::vector<SlotHandle> notices;
    while (!stop_.load()) {
      if (life.die.load()) {
        life.dead.store(true);
        while (life.die.load()) std::this_thread::yield();
        life.dead.store(false);
        continue;
      }
      const std::vector<SlotHandle> old = std::exchange(notices, slots.ReadySlots(group));
      if (notices.empty()) std::this_thread::yield();
      notices.insert(notices.end(), old.begin(),
                     old.begin() + static_cast<long>(old.size() / 2));  // repeated, stale
      for (const SlotHandle slot : notices) {
        if (!slots.Take(slot, group)) continue;
        if (life.die.load()) break;  // dies while it runs the job
        TestJob& job = JobIn(slot);
        if (random() % 16 == 0) {
          slots.Fail(slot, Code::kInternal);
          continue;
        }
        job.answer = AnswerOf(job.id);
        ++job.answered;
        if (life.die.load()) break;  // dies between answer and DONE
        slots.Complete(slot);
      }
    }
  }

  void Route() {
    std::mt19937 random(1000);
    SlotPool& slots = arena_.slots();
    while (owners_left_.load() > 0 && !broken_.load()) {
      const uint32_t worker = static_cast<uint32_t>(random() % kWorkers);
      const GroupId group{worker};
      if (random() % 2 == 0) {
        slots.ReturnReady(group);  // legal while the worker lives
      } else {
        WorkerSwitch& life = switches_[worker];
        life.die.store(true);
        while (!life.dead.load()) std::this_thread::yield();
        slots.ReturnGroup(group);
        deaths_.fetch_add(1);
        life.die.store(false);
        while (life.dead.load())
          std::this_thread::yield();  // else the next "death" could go unseen
      }
      const int64_t pause_until_us = MonotonicUs() + 300;
      while (MonotonicUs() < pause_until_us) std::this_thread::yield();
    }
  }

  void Fail(const char* what) {
    ADD_FAILURE() << what;
    broken_.store(true);
    owners_left_.fetch_sub(1);
  }

  Arena arena_ = Arena::InMemory(
      SmallConfig(3, 1));  // as many slots as owners, so abandoned ones cause scarcity
  std::array<ProcessId, kOwners> owners_{};
  std::array<WorkerSwitch, kWorkers> switches_;
  std::atomic<uint32_t> owners_left_{kOwners};
  std::atomic<bool> stop_{false};
  std::atomic<bool> broken_{false};
  std::atomic<uint64_t> claimed_{0}, done_{0}, failed_{0}, gave_up_{0}, deaths_{0};
};

TEST_F(SlotStress, EveryJobEndsExactlyOnceAndNoSlotLeaks) {
  for (uint32_t i = 0; i < kOwners; ++i)
    owners_[i] = AddProcess(arena_, ProcessRole::kApiServer, i);
  std::vector<std::thread> workers, owners;
  for (uint32_t i = 0; i < kWorkers; ++i) workers.emplace_back([this, i] { Work(i); });
  for (uint32_t i = 0; i < kOwners; ++i) owners.emplace_back([this, i] { Own(i); });
  Route();
  for (std::thread& owner : owners) owner.join();
  stop_.store(true);
  for (std::thread& worker : workers) worker.join();
  // What the owners gave up while it ran, and a worker's "death" left behind.
  for (uint32_t i = 0; i < kWorkers; ++i) arena_.slots().ReturnGroup(GroupId{i});

  EXPECT_EQ(claimed_.load(), uint64_t{kOwners} * kJobsPerOwner);
  EXPECT_EQ(done_.load() + failed_.load() + gave_up_.load(), claimed_.load());
  EXPECT_EQ(arena_.metrics().Total(Counter::kSlotsClaimed), claimed_.load());
  EXPECT_EQ(arena_.slots().InUse(), 0u);
  // The test reached what it is for.
  EXPECT_GT(done_.load(), claimed_.load() / 2);
  EXPECT_GT(failed_.load(), 0u);
  EXPECT_GT(gave_up_.load(), 0u);
  EXPECT_GT(deaths_.load(), 0u);
  EXPECT_GT(arena_.metrics().Total(Counter::kSlotsReturned), 0u);
}

TEST(ClaimStress, NoTwoThreadsEverHoldTheSameSlot) {
  Arena arena = Arena::InMemory(SmallConfig(2, 1));
  const ProcessId owner = AddProcess(arena, ProcessRole::kApiServer, 0);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> claims{0}, clashes{0};
  for (uint64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; n < 3000; ++n) {
        const Result<SlotHandle> slot = arena.slots().Claim(owner, 8);
        if (!slot.ok()) {
          std::this_thread::yield();
          continue;
        }
        auto& word = *reinterpret_cast<uint64_t*>(
            arena.slots().payload(*slot).data());  // plain: a race would show
        word = t;
        if (n % 4 == 0) std::this_thread::yield();
        if (word != t) clashes.fetch_add(1);
        claims.fetch_add(1);
        arena.slots().Release(*slot);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes.load(), 0u);
  EXPECT_GT(claims.load(), 1000u);
  EXPECT_EQ(arena.metrics().Total(Counter::kSlotsClaimed), claims.load());
  EXPECT_EQ(arena.slots().InUse(), 0u);
}

}  // namespace
}  // namespace sysone
