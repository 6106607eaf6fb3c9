// The way of a job through the arena and back, seen from the API server; the test plays the worker and the router.
// SPDX-License-Identifier: Apache-2.0
#include "api_server/engine_client.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <mutex>
#include <thread>

#include "shm_arena/job_layout.h"
#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

using Outcome = EngineClient::Outcome;

class FakeDoorbell : public Doorbell {
 public:
  bool Ring(GroupId, SlotHandle) override {
    ++rings;
    return false;  // dropped: the client must not care
  }
  std::atomic<int> rings = 0;
};

DecisionJobPlan Plan(TokenId first = 10) {
  DecisionJobPlan plan;
  plan.tokens = {first, 11, 12, 20, 21, 30};
  plan.prefix_len = 3;
  plan.questions = {{3, 5, 5, {1, 2, 3}}, {5, 6, 4, {4}}};
  return plan;
}

// A client and the loop that polls it, as the HTTP server's does.
class LoopedClient {
 public:
  LoopedClient(Arena& arena, Doorbell& bell, const AdmissionLimits& limits,
               const std::string& folder)
      : socket_(*WakeSocket::Bind(folder, arena.self())),
        client_(arena, bell, socket_, limits, true),
        wake_(eventfd(0, EFD_NONBLOCK)),
        loop_([this] { Loop(); }) {}
  ~LoopedClient() {
    EXPECT_EQ(client_.in_flight(), 0u);
    stop_ = true;
    Wake();
    loop_.join();
    close(wake_);
  }

  std::future<Outcome> Begin(const JobRequest& request) {
    const auto promise = std::make_shared<std::promise<Outcome>>();
    client_.Start(request, [promise](Outcome outcome) { promise->set_value(std::move(outcome)); });
    Wake();
    return promise->get_future();
  }
  Outcome Run(const JobRequest& request) { return Begin(request).get(); }

 private:
  void Wake() {
    const uint64_t one = 1;
    EXPECT_EQ(write(wake_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void Loop() {
    while (!stop_) {
      const int64_t next_us = client_.Poll();
      pollfd fds[] = {{client_.wake_fd(), POLLIN, 0}, {wake_, POLLIN, 0}};
      const int64_t wait_us = std::clamp<int64_t>(next_us - MonotonicUs(), 0, 60'000'000);
      poll(fds, 2, client_.FallAsleep() ? static_cast<int>((wait_us + 999) / 1000) : 0);
      client_.WakeUp();
      if (fds[0].revents != 0) client_.Quieten();
      uint64_t count;
      [[maybe_unused]] const ssize_t got = read(wake_, &count, sizeof count);
    }
  }

  WakeSocket socket_;
  EngineClient client_;
  const int wake_;
  std::atomic<bool> stop_ = false;
  std::thread loop_;
};

class EngineClientTest : public testing::Test {
 protected:
  EngineClientTest() : arena_(Arena::InMemory(SmallConfig(4, 2))) {
    EXPECT_NE(mkdtemp(folder_), nullptr);
    EXPECT_TRUE(arena_.Register(ProcessRole::kApiServer, 0).ok());
    arena_.WakeThrough(folder_);
    GroupUp(kGroup0);
  }
  ~EngineClientTest() override { std::filesystem::remove_all(folder_); }
  // Every way a request can end leaves nothing behind.
  void TearDown() override {
    EXPECT_EQ(arena_.slots().InUse(), 0u);
    const BoardSnapshot board = arena_.board().Snapshot();
    for (uint32_t g = 0; g < board.group_count; ++g) {
      EXPECT_EQ(board.groups[g].outstanding_jobs, 0) << g;
      EXPECT_EQ(board.groups[g].outstanding_tokens, 0) << g;
    }
  }

  void GroupUp(GroupId group) {
    arena_.board().StartGroup(group);
    arena_.board().GroupReady(group, arena_.self(), 1000);
  }
  // What the router does when it finds the worker dead.
  void GroupDies(GroupId group) {
    arena_.board().SetGroupState(group, GroupState::kDead);
    arena_.slots().ReturnGroup(group);
  }

  JobRequest Request(int64_t deadline_us = Soon(), uint64_t cache_salt_hash = 0) const {
    return {plan_, false, cache_salt_hash, 0, deadline_us, [this] { return client_gone_.load(); }};
  }
  LoopedClient Client(const AdmissionLimits& limits = {}) {
    return {arena_, bell_, limits, folder_};
  }
  std::future<Outcome> Start(LoopedClient& client, const JobRequest& request) {
    return client.Begin(request);
  }

  // Waits for a job at either group, and takes it as its worker would.
  std::optional<SlotHandle> TakeNext(GroupId group) {
    for (const int64_t deadline_us = Soon(); MonotonicUs() < deadline_us; std::this_thread::yield())
      for (const SlotHandle slot : arena_.slots().ReadySlots(group))
        if (arena_.slots().Take(slot, group)) return slot;
    ADD_FAILURE() << "no job for group " << Index(group);
    return std::nullopt;
  }
  GroupId GroupWithAJob() {
    for (const int64_t deadline_us = Soon(); MonotonicUs() < deadline_us; std::this_thread::yield())
      for (const GroupId group : {kGroup0, kGroup1})
        if (!arena_.slots().ReadySlots(group).empty()) return group;
    ADD_FAILURE() << "no job";
    return kGroup0;
  }
  // Each logit tells its first token, its sequence and its label.
  void Answer(SlotHandle slot) {
    const JobView view = *JobView::Open(arena_.slots().payload(slot), 1000);
    for (int32_t s = 0; s < view.sequence_count(); ++s) {
      for (size_t i = 0; i < view.labels(s).size(); ++i)
        view.label_logits(s)[i] =
            static_cast<float>(view.prefix()[0] * 100 + view.suffix(s)[0] + view.labels(s)[i]);
      view.result(s) = {0.5F + static_cast<float>(s), 0, 70 + s, 2};
    }
    view.SetTimes(123, 456);
    EXPECT_TRUE(arena_.slots().Complete(slot));
  }

  static Code RefusalOf(const Outcome& outcome) {
    const auto* refusal = std::get_if<JobRefusal>(&outcome);
    return refusal == nullptr ? Code::kOk : refusal->status.code();
  }
  static int64_t RetryOf(const Outcome& outcome) {
    const auto* refusal = std::get_if<JobRefusal>(&outcome);
    return refusal == nullptr ? 0 : refusal->retry_after_us;
  }
  static void ExpectAnswered(const Outcome& outcome, float first_token = 10) {
    ASSERT_TRUE(std::holds_alternative<JobResult>(outcome))
        << std::get<JobRefusal>(outcome).status.message();
    const JobResult& result = std::get<JobResult>(outcome);
    const float base = first_token * 100;
    ASSERT_EQ(result.questions.size(), 2u);
    EXPECT_EQ(result.questions[0].label_logits,
              (std::vector<float>{base + 21, base + 22, base + 23}));
    EXPECT_EQ(result.questions[1].label_logits, (std::vector<float>{base + 34}));
  }

  char folder_[32] = "/tmp/sysone-client-XXXXXX";
  Arena arena_;
  FakeDoorbell bell_;
  const DecisionJobPlan plan_ = Plan();
  std::atomic<bool> client_gone_ = false;
};

TEST_F(EngineClientTest, AJobArrivesAsPlannedAndItsResultsComeBack) {
  LoopedClient client = Client();
  JobRequest request = Request();
  request.full_head = true;
  request.cache_salt_hash = 77;
  request.priority = -5;
  auto run = Start(client, request);
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  const JobView view = *JobView::Open(arena_.slots().payload(*slot), 1000);
  EXPECT_TRUE(std::ranges::equal(view.prefix(), std::vector<TokenId>{10, 11, 12}));
  EXPECT_TRUE(std::ranges::equal(view.suffix(0), std::vector<TokenId>{20, 21}));
  EXPECT_TRUE(std::ranges::equal(view.suffix(1), std::vector<TokenId>{30}));
  EXPECT_TRUE(std::ranges::equal(view.labels(0), std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(view.flags(), kJobWantsDiagnostics);
  EXPECT_EQ(view.cache_salt_hash(), 77u);
  SlotInfo info;
  ASSERT_TRUE(arena_.slots().ReadInfo(*slot, &info));
  EXPECT_EQ(info.deadline_us, request.deadline_us);
  EXPECT_EQ(info.priority, -5);
  EXPECT_EQ(arena_.board().Read(kGroup0).outstanding_jobs, 1);
  EXPECT_EQ(arena_.board().Read(kGroup0).outstanding_tokens, 6);
  Answer(*slot);
  const Outcome outcome = run.get();
  ExpectAnswered(outcome);
  const JobResult& result = std::get<JobResult>(outcome);
  ASSERT_TRUE(result.questions[1].full_head);
  EXPECT_EQ(result.questions[1].full_head->log_sum_exp, 1.5F);
  EXPECT_EQ(result.questions[1].full_head->argmax, 71);
  EXPECT_EQ(result.cached_tokens, 4u);
  EXPECT_EQ(result.queue_us, 123);
  EXPECT_EQ(result.pass_us, 456);
  EXPECT_EQ(bell_.rings, 1);
}

TEST_F(EngineClientTest, WithoutTheFullHeadNoneIsMadeUp) {
  LoopedClient client = Client();
  auto run = Start(client, Request());
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  EXPECT_EQ(JobView::Open(arena_.slots().payload(*slot), 1000)->flags(), 0u);
  Answer(*slot);
  const Outcome outcome = run.get();
  ExpectAnswered(outcome);
  EXPECT_FALSE(std::get<JobResult>(outcome).questions[0].full_head);
}

TEST_F(EngineClientTest, ADeadlineEndsTheWaitWhetherTheJobRunsOrNot) {
  LoopedClient client = Client();
  EXPECT_EQ(RefusalOf(client.Run(Request(MonotonicUs() + 20'000))), Code::kDeadlineExceeded);
  EXPECT_EQ(arena_.slots().InUse(), 0u);

  auto run = Start(client, Request(MonotonicUs() + 1'000'000));
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  EXPECT_EQ(RefusalOf(run.get()), Code::kDeadlineExceeded);
  EXPECT_EQ(arena_.slots().word(slot->index).state, SlotState::kAbandoned)
      << "the worker still writes there";
  EXPECT_FALSE(arena_.slots().Complete(*slot));
}

TEST_F(EngineClientTest, WhatTheWorkerFailsIsReportedWithItsCode) {
  LoopedClient client = Client();
  for (const Code code : {Code::kDeadlineExceeded, Code::kInternal, Code::kTooLarge}) {
    auto run = Start(client, Request());
    const auto slot = TakeNext(kGroup0);
    ASSERT_TRUE(slot);
    EXPECT_TRUE(arena_.slots().Fail(*slot, code));
    EXPECT_EQ(RefusalOf(run.get()), code);
  }
}

TEST_F(EngineClientTest, AClientThatLeavesFreesItsSlot) {
  LoopedClient client = Client();
  client_gone_ = true;
  EXPECT_EQ(RefusalOf(client.Run(Request())), Code::kCancelled);
  EXPECT_EQ(arena_.slots().InUse(), 0u);

  client_gone_ = false;
  auto run = Start(client, Request());
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  client_gone_ = true;
  EXPECT_EQ(RefusalOf(run.get()), Code::kCancelled);
  EXPECT_FALSE(arena_.slots().Wanted(*slot));
  EXPECT_FALSE(arena_.slots().Fail(*slot, Code::kCancelled));
}

TEST_F(EngineClientTest, AJobWhoseGroupDiesIsAnsweredByAnother) {
  GroupUp(kGroup1);
  LoopedClient client = Client();
  for (const bool running : {false, true}) {
    auto run = Start(client, Request());
    const GroupId lost = GroupWithAJob();
    const GroupId other = lost == kGroup0 ? kGroup1 : kGroup0;
    std::optional<SlotHandle> before;
    if (running) before = TakeNext(lost);
    GroupDies(lost);
    const auto slot = TakeNext(other);
    ASSERT_TRUE(slot);
    EXPECT_EQ(arena_.board().Read(lost).outstanding_jobs, 0);
    EXPECT_EQ(arena_.board().Read(other).outstanding_jobs, 1);
    Answer(*slot);
    ExpectAnswered(run.get());
    EXPECT_FALSE(before && arena_.slots().Complete(*before)) << "answered twice";
    GroupUp(lost);
  }
  EXPECT_EQ(bell_.rings, 4);
}

TEST_F(EngineClientTest, TheGroupThatLostAJobIsTheLastToGetItAgain) {
  GroupUp(kGroup1);
  LoopedClient client = Client();
  for (int repeat = 0; repeat < 4; ++repeat) {  // ties rotate, so chance would not pass this
    auto run = Start(client, Request());
    const GroupId lost = GroupWithAJob();
    arena_.slots().ReturnGroup(lost);  // dead, but the board does not know it yet
    const auto slot = TakeNext(lost == kGroup0 ? kGroup1 : kGroup0);
    ASSERT_TRUE(slot);
    Answer(*slot);
    ExpectAnswered(run.get());
  }
}

TEST_F(EngineClientTest, AJobThatComesAgainGoesWhereItWasAndCountsAsOneToken) {
  GroupUp(kGroup1);
  LoopedClient client = Client();
  for (uint64_t salt = 1; salt <= 4; ++salt) {
    std::optional<GroupId> first;
    for (int repeat = 0; repeat < 3; ++repeat) {
      auto run = Start(client, Request(Soon(), salt));
      const GroupId group = GroupWithAJob();
      EXPECT_EQ(group, first.value_or(group)) << "ties rotate, so chance would not pass this";
      EXPECT_EQ(arena_.board().Read(group).outstanding_tokens, first ? 1 : 6);
      first = group;
      const auto slot = TakeNext(group);
      ASSERT_TRUE(slot);
      Answer(*slot);
      ExpectAnswered(run.get());
    }
  }
}

TEST_F(EngineClientTest, AJobWhoseOnlyGroupDiesWaitsForItToComeBack) {
  LoopedClient client = Client();
  auto run = Start(client, Request());
  ASSERT_TRUE(TakeNext(kGroup0));
  GroupDies(kGroup0);
  GroupUp(kGroup0);
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  Answer(*slot);
  ExpectAnswered(run.get());

  // But not longer than until its deadline.
  run = Start(client, Request(MonotonicUs() + 1'000'000));
  ASSERT_TRUE(TakeNext(kGroup0));
  GroupDies(kGroup0);
  EXPECT_EQ(RefusalOf(run.get()), Code::kDeadlineExceeded);
}

TEST_F(EngineClientTest, WithoutAGroupTheRequestIsRefusedAtOnce) {
  GroupDies(kGroup0);
  LoopedClient client = Client();
  const Outcome outcome = client.Run(Request());
  EXPECT_EQ(RefusalOf(outcome), Code::kUnavailable);
  EXPECT_GT(RetryOf(outcome), 0);
  EXPECT_EQ(arena_.metrics().Total(Counter::kSlotsClaimed), 0u);
}

TEST_F(EngineClientTest, AFullQueueRefusesTheNextRequestAndTellsWhenToComeBack) {
  uint64_t salt = 0;
  for (const AdmissionLimits& limits : {AdmissionLimits{1, 0}, AdmissionLimits{0, 11}}) {
    LoopedClient client = Client(limits);
    ++salt;  // nothing of it was computed before
    const uint64_t refused = arena_.metrics().Total(Counter::kAdmissionRejectedQueue);
    auto run = Start(client, Request(Soon(), salt));
    const auto slot = TakeNext(kGroup0);
    ASSERT_TRUE(slot);
    const Outcome outcome = client.Run(Request(Soon(), ++salt));
    EXPECT_EQ(RefusalOf(outcome), Code::kUnavailable);
    EXPECT_GT(RetryOf(outcome), 0);
    EXPECT_EQ(arena_.metrics().Total(Counter::kAdmissionRejectedQueue), refused + 1);
    Answer(*slot);
    ExpectAnswered(run.get());
  }
}

TEST_F(EngineClientTest, ADeadlineThatTheQueueCannotMeetIsRefusedAtOnce) {
  LoopedClient client = Client();
  arena_.board().SetRate(kGroup0, {.tokens_per_second = 1, .tokens_a_pass = 1});
  auto run = Start(client, Request());
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  const Outcome outcome = client.Run(Request(MonotonicUs() + 2'000'000));  // behind six tokens
  EXPECT_EQ(RefusalOf(outcome), Code::kUnavailable);
  EXPECT_GT(RetryOf(outcome), 0);
  EXPECT_EQ(arena_.metrics().Total(Counter::kAdmissionRejectedDeadline), 1u);
  Answer(*slot);
  ExpectAnswered(run.get());
}

TEST_F(EngineClientTest, AFullArenaPushesBackAndALargerJobThanAnyBlockIsTooLarge) {
  LoopedClient client = Client();
  std::vector<SlotHandle> taken;
  while (arena_.slots().InUse() < arena_.slots().slot_count())
    taken.push_back(*arena_.slots().Claim(arena_.self(), 1));
  const Outcome full = client.Run(Request());
  EXPECT_EQ(RefusalOf(full), Code::kUnavailable);
  EXPECT_GT(RetryOf(full), 0);
  for (const SlotHandle slot : taken) arena_.slots().Release(slot);

  DecisionJobPlan large = Plan();
  large.tokens.resize(3 + 900 * 5, 30);
  large.questions.clear();
  for (uint32_t q = 0; q < 5; ++q)
    large.questions.push_back({3 + 900 * q, 3 + 900 * (q + 1), 903, {1}});
  const JobRequest request{large, false, 0, 0, Soon(), {}};
  EXPECT_EQ(RefusalOf(client.Run(request)), Code::kTooLarge);
}

TEST_F(EngineClientTest, ASlotThatTheRouterTookBackEndsTheWait) {
  LoopedClient client = Client();
  auto run = Start(client, Request());
  EXPECT_EQ(GroupWithAJob(), kGroup0);
  arena_.slots().ReclaimOwner(arena_.self());
  EXPECT_EQ(RefusalOf(run.get()), Code::kInternal);
}

TEST_F(EngineClientTest, ManyAtOnceEachGetTheirOwnAnswerWhileGroupsComeAndGo) {
  GroupUp(kGroup1);
  LoopedClient client = Client();
  std::atomic<bool> stop = false;
  std::mutex group_mutex[2];  // a worker does not touch a slot once its group is dead
  std::vector<std::thread> threads;
  for (const GroupId group : {kGroup0, kGroup1}) {
    threads.emplace_back([&, group] {
      for (; !stop; std::this_thread::yield()) {
        const std::lock_guard alive(group_mutex[Index(group)]);
        for (const SlotHandle slot : arena_.slots().ReadySlots(group))
          if (arena_.slots().Take(slot, group)) Answer(slot);
      }
    });
  }
  threads.emplace_back([&] {
    for (uint32_t turn = 0; !stop; ++turn, std::this_thread::yield()) {
      const GroupId group{turn % 2};
      const std::lock_guard dead(group_mutex[Index(group)]);
      GroupDies(group);
      GroupUp(group);
    }
  });
  std::vector<std::future<int>> clients;
  constexpr int kJobs = 100;
  constexpr uint64_t kReturned = 20;
  const auto returned = [&] { return arena_.metrics().Total(Counter::kSlotsReturned); };
  for (int t = 0; t < 4; ++t) {
    clients.push_back(std::async(std::launch::async, [&, t] {
      int answered = 0;
      // On, until enough jobs really lost their group.
      const int64_t deadline_us = Soon();
      for (int i = 0; i < kJobs || (returned() < kReturned && MonotonicUs() < deadline_us); ++i) {
        const DecisionJobPlan plan = Plan(100 + 200 * t + i % kJobs);
        for (;;) {
          const Outcome outcome = client.Run({plan, false, 0, 0, Soon(), {}});
          if (RefusalOf(outcome) == Code::kUnavailable) continue;  // both groups were down
          ExpectAnswered(outcome, static_cast<float>(plan.tokens[0]));
          if (!std::holds_alternative<JobResult>(outcome)) return -1;
          ++answered;
          break;
        }
      }
      return answered;
    }));
  }
  for (auto& answered : clients) EXPECT_GE(answered.get(), kJobs);
  EXPECT_GE(returned(), kReturned);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_F(EngineClientTest, AnAnswerWhoseNoticeWasLostIsFoundAllTheSame) {
  LoopedClient client = Client();
  auto run = Start(client, Request());
  const auto slot = TakeNext(kGroup0);
  ASSERT_TRUE(slot);
  arena_.slots().SetWaker(nullptr);  // the worker dies before it can wake the API server
  Answer(*slot);
  ExpectAnswered(run.get());
}

TEST_F(EngineClientTest, ANoticeOfASlotsLastUseEndsNothing) {
  LoopedClient client = Client();
  for (int i = 0; i < 20; ++i) {
    auto run = Start(client, Request());
    const auto slot = TakeNext(kGroup0);
    ASSERT_TRUE(slot);
    NoticeBoard board = arena_.notices();
    for (uint32_t any = 0; any < arena_.slots().slot_count(); ++any)
      [[maybe_unused]] const bool sleeps = board.Post(NoticeReceiver::Of(arena_.self()), any);
    EXPECT_NE(run.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    Answer(*slot);
    ExpectAnswered(run.get());
  }
}

}  // namespace
}  // namespace sysone
