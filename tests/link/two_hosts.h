// Two hosts in one process: the arena of each in plain memory, a stand-in hub on one and an intake on the other, and a loopback
// connection between them. What a worker would do on the second host, the test does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api_server/intake.h"
#include "shm_arena/group_bell.h"
#include "shm_arena/job_layout.h"
#include "tests/link/listening_socket.h"
#include "tests/model/temp_folder.h"
#include "tests/shm_arena/test_arena.h"
#include "worker/stand_in_hub.h"

namespace sysone {

inline constexpr int32_t kVocabulary = 100;
inline constexpr int64_t kTestTimeoutUs = 600'000;

inline HostIdentity TestIdentity() { return {"0.1.0", "feed", "int8", kVocabulary}; }
inline LinkHello TestHello() { return {kVocabulary, "0.1.0", "feed", "int8", "host-b", 0}; }

inline bool Eventually(const std::function<bool()>& condition) {
  const int64_t until_us = Soon();
  while (!condition()) {
    if (MonotonicUs() > until_us) return false;
    std::this_thread::yield();
  }
  return true;
}

// The router's host with places for some groups of others, and a client of its arena.
class RouterHost {
 public:
  explicit RouterHost(uint32_t places = 1)
      : arena_(Arena::InMemory(SmallConfig(64, 8))),
        link_(*LinkListener::Create(port_.fd(), std::nullopt)) {
    EXPECT_TRUE(arena_.Register(ProcessRole::kStandIn, 0).ok());
    client_ = AddProcess(arena_, ProcessRole::kApiServer, 0);
    std::vector<std::unique_ptr<StandIn>> stand_ins;
    for (uint32_t g = 0; g < places; ++g) {
      arena_.board().StartGroup(GroupId{g});
      stand_ins.push_back(
          std::make_unique<StandIn>(arena_, *arena_.RegisterStandIn(GroupId{g}), *link_,
                                    StandInOptions{GroupId{g}, kVocabulary, kTestTimeoutUs}));
    }
    hub_ = std::make_unique<StandInHub>(*link_, TestIdentity(), std::move(stand_ins));
    thread_ = std::thread([this] { Loop(); });
  }
  ~RouterHost() { End(); }

  // As on SIGTERM: returns when the process would have ended.
  void End() {
    end_ = true;
    if (thread_.joinable()) thread_.join();
  }

  Arena& arena() { return arena_; }
  ProcessId client() const { return client_; }
  std::string address() const { return port_.address(); }
  GroupState State(uint32_t group = 0) { return arena_.board().State(GroupId{group}); }
  bool WaitFor(GroupState state, uint32_t group = 0) {
    return Eventually([&] { return State(group) == state; });
  }

  // A job whose two sequences are `first`, 2, 3 and `first`, 4.
  SlotHandle Publish(int32_t first, uint32_t group = 0, int64_t deadline_us = 0) {
    const JobShape shape{1, 3, 2, 3};
    const SlotHandle slot = *arena_.slots().Claim(client_, JobBytes(shape));
    JobWriter writer = *JobWriter::Begin(arena_.slots().payload(slot), shape, 0, 77);
    writer.SetPrefix(std::vector<int32_t>{first});
    writer.AddSequence(std::vector<int32_t>{2, 3}, std::vector<int32_t>{10, 11});
    writer.AddSequence(std::vector<int32_t>{4}, std::vector<int32_t>{12});
    bytes_ = static_cast<uint32_t>(writer.Finish());
    Republish(slot, group, deadline_us);
    return slot;
  }
  void Republish(SlotHandle slot, uint32_t group = 0, int64_t deadline_us = 0) {
    EXPECT_TRUE(
        arena_.slots().Publish(slot, GroupId{group}, {MonotonicUs(), deadline_us, 0, bytes_}));
  }
  SlotOutcome End(SlotHandle slot) { return WaitForEnd(arena_, client_, slot, Soon()); }
  JobView View(SlotHandle slot) {
    return *JobView::Open(arena_.slots().payload(slot), kVocabulary);
  }

 private:
  void Loop() {
    int64_t next_us = 0;
    while (!hub_->done()) {
      link_->Wait(-1, std::min(next_us, MonotonicUs() + 2'000));
      if (end_) hub_->Drain();
      const int64_t now_us = MonotonicUs();
      hub_->Receive(now_us);
      next_us = hub_->Turn(now_us);
    }
  }

  ListeningSocket port_;
  Arena arena_;
  ProcessId client_{};
  uint32_t bytes_ = 0;
  std::unique_ptr<LinkListener> link_;
  std::unique_ptr<StandInHub> hub_;
  std::atomic<bool> end_{false};
  std::thread thread_;
};

// What the test's worker answers: a function of the tokens, so that a mixed-up job shows.
inline float AnswerTo(const JobView& job, int32_t sequence, size_t label) {
  float sum = static_cast<float>(job.labels(sequence)[label]) * 0.1F;
  for (const int32_t token : job.prefix()) sum += static_cast<float>(token);
  for (const int32_t token : job.suffix(sequence)) sum = sum * 1.5F + static_cast<float>(token);
  return sum;
}

// A host that lends its group 0, with a worker that is the test's: it answers at once, or when it is let.
class LendingHost {
 public:
  explicit LendingHost(std::string address, uint32_t small_slots = 64)
      : arena_(Arena::InMemory(SmallConfig(small_slots, 1))), address_(std::move(address)) {
    EXPECT_TRUE(arena_.Register(ProcessRole::kIntake, 0).ok());
    arena_.WakeThrough(folder_.path());
    worker_id_ = AddProcess(arena_, ProcessRole::kWorker, 0);
    arena_.board().StartGroup(kGroup0);
    intake_thread_ = std::thread([this] { IntakeLoop(); });
    worker_thread_ = std::thread([this] { WorkerLoop(); });
  }
  ~LendingHost() { Vanish(); }

  void GroupReady() { arena_.board().GroupReady(kGroup0, worker_id_, 4096); }
  // Its worker dies, and this host's router does what it does then.
  void GroupDies() {
    arena_.board().SetGroupState(kGroup0, GroupState::kDead);
    arena_.slots().ReturnGroup(kGroup0);
  }
  void HoldAnswers(bool hold) { hold_ = hold; }
  void Drain() { drain_ = true; }
  bool intake_ended() const { return intake_ended_; }
  int answers() const { return answers_; }
  Arena& arena() { return arena_; }
  // Ends without a word.
  void Vanish() {
    end_ = true;
    if (intake_thread_.joinable()) intake_thread_.join();
    if (worker_thread_.joinable()) worker_thread_.join();
  }

 private:
  void IntakeLoop() {
    const auto doorbell = MakeGroupDoorbell(arena_, nullptr);
    auto wake = WakeSocket::Bind(folder_.path(), arena_.self());
    ASSERT_TRUE(wake.ok()) << wake.status().message();
    IntakeOptions options;
    options.group = kGroup0;
    options.router_address = address_;
    options.hello = TestHello();
    options.link_timeout_us = kTestTimeoutUs;
    Intake intake(arena_, *doorbell, *wake, options);
    while (!end_ && !intake.done()) {
      if (drain_) intake.Drain();
      intake.Step();
    }
    intake_ended_ = true;
  }

  void WorkerLoop() {
    while (!end_) {
      std::this_thread::yield();
      if (hold_ || arena_.board().State(kGroup0) != GroupState::kReady) continue;
      for (const SlotHandle slot : arena_.slots().ReadySlots(kGroup0)) Answer(slot);
    }
  }

  void Answer(SlotHandle slot) {
    SlotInfo info;
    if (!arena_.slots().Take(slot, kGroup0) || !arena_.slots().ReadInfo(slot, &info)) return;
    if (info.deadline_us != 0 && info.deadline_us < MonotonicUs()) {
      arena_.slots().Fail(slot, Code::kDeadlineExceeded);
      return;
    }
    const JobView job = *JobView::Open(arena_.slots().payload(slot), kVocabulary);
    for (int32_t s = 0; s < job.sequence_count(); ++s) {
      const std::span<float> logits = job.label_logits(s);
      for (size_t l = 0; l < logits.size(); ++l) logits[l] = AnswerTo(job, s, l);
      job.result(s) = {0, 0, -1, 1};
    }
    job.SetTimes(5, 7);
    arena_.board().RecordBatch(kGroup0, 1, static_cast<uint64_t>(job.token_count()), 7);
    ++answers_;
    arena_.slots().Complete(slot);
  }

  TempFolder folder_;
  Arena arena_;
  const std::string address_;
  ProcessId worker_id_{};
  std::atomic<bool> end_{false}, hold_{false}, drain_{false}, intake_ended_{false};
  std::atomic<int> answers_{0};
  std::thread intake_thread_, worker_thread_;
};

}  // namespace sysone
