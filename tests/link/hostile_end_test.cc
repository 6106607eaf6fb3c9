// An end that says what it should not: the other one leaves it, and neither its memory nor its jobs suffer.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <random>

#include "tests/link/two_hosts.h"

namespace sysone {
namespace {

// A host that says what the test wants, and reads what comes.
class ScriptedHost {
 public:
  explicit ScriptedHost(const std::string& address)
      : connection_(*LinkConnection::Connect(address, std::nullopt)) {}

  void Send(const LinkBody& body) {
    std::vector<std::byte> frame;
    WriteLinkMessage({session, body}, frame);
    connection_->Send(frame);
  }
  void SendBytes(std::span<const std::byte> bytes) { connection_->Send(bytes); }
  template <class Body>
  std::optional<Body> Await() {
    const int64_t until_us = Soon();
    while (MonotonicUs() < until_us) {
      connection_->Wait(-1, MonotonicUs() + 20'000);
      while (connection_->Receive(frame_)) {
        LinkMessage message;
        if (!ReadLinkMessage(frame_, message).ok()) return std::nullopt;
        if (const auto* const body = std::get_if<Body>(&message.body)) {
          session = message.session;
          return *body;
        }
      }
    }
    return std::nullopt;
  }
  bool Join() {
    Send(TestHello());
    if (!Await<LinkWelcome>()) return false;
    LinkStatus ready;
    ready.state = LinkGroupState::kReady;
    ready.max_model_len = 100;
    Send(ready);
    return true;
  }

  uint64_t session = 0;

 private:
  std::unique_ptr<LinkConnection> connection_;
  std::vector<std::byte> frame_;
};

std::string RefusalOf(const LinkHello& hello) {
  RouterHost router;
  ScriptedHost host(router.address());
  host.Send(hello);
  const auto refusal = host.Await<LinkRefusal>();
  return refusal ? refusal->reason : "(none)";
}

TEST(HostileEnd, AHostThatDoesNotFitIsToldWhy) {
  LinkHello hello = TestHello();
  EXPECT_EQ(WhyNot(TestIdentity(), hello), "");
  hello.model_fingerprint = "beef";
  EXPECT_EQ(RefusalOf(hello),
            "host-b, group 0: the model's fingerprint is beef there, and feed at the router");
  hello = TestHello();
  hello.program_version = "9.9";
  EXPECT_NE(RefusalOf(hello).find("version is 9.9 there, and 0.1.0"), std::string::npos);
  hello = TestHello();
  hello.dtype = "float32";
  EXPECT_NE(RefusalOf(hello).find("--dtype is float32 there"), std::string::npos);
  hello = TestHello();
  hello.vocabulary = 7;
  EXPECT_NE(RefusalOf(hello).find("vocabulary"), std::string::npos);
}

TEST(HostileEnd, ALinkOfAnotherVersionIsToldSo) {
  RouterHost router;
  ScriptedHost host(router.address());
  std::vector<std::byte> frame;
  WriteLinkMessage({0, TestHello()}, frame);
  frame[4] = std::byte{2};
  host.SendBytes(frame);
  const auto refusal = host.Await<LinkRefusal>();
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->reason.find("version 2"), std::string::npos) << refusal->reason;
}

TEST(HostileEnd, WhenAllPlacesAreTakenAHostIsToldToComeBack) {
  RouterHost router;
  ScriptedHost first(router.address()), second(router.address());
  ASSERT_TRUE(first.Join());
  second.Send(TestHello());
  const auto refusal = second.Await<LinkRefusal>();
  ASSERT_TRUE(refusal);
  EXPECT_TRUE(refusal->full);
}

TEST(HostileEnd, AHostThatFallsSilentIsLost) {
  RouterHost router;
  ScriptedHost host(router.address());
  ASSERT_TRUE(host.Join());
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  const SlotHandle slot = router.Publish(1);
  ASSERT_TRUE(host.Await<LinkJob>());
  EXPECT_EQ(router.End(slot).state, SlotState::kReturned);
  EXPECT_EQ(router.State(), GroupState::kDead);
}

// Each of these ends the session, and the job goes back.
TEST(HostileEnd, ASessionEndsWithTheFirstWordThatIsWrong) {
  using Say = std::function<void(ScriptedHost&, const LinkJob&)>;
  const std::vector<std::byte> bytes(3);
  const std::vector<Say> wrong = {
      [&](ScriptedHost& host, const LinkJob& job) {
        host.Send(LinkResult{job.id, Code::kOk, 0, 0, bytes});
      },
      [&](ScriptedHost& host, const LinkJob& job) {
        host.Send(LinkResult{job.id, Code::kOk, 0, 0, {}});
      },
      [&](ScriptedHost& host, const LinkJob&) { host.SendBytes(bytes); },
      [&](ScriptedHost& host, const LinkJob&) {
        host.Send(LinkJob{1, 1, 0, bytes});
      },
      [&](ScriptedHost& host, const LinkJob&) { host.Send(LinkWelcome{0}); },
      [&](ScriptedHost& host, const LinkJob&) { host.Send(LinkBye{}); },
  };
  RouterHost router;
  for (size_t i = 0; i < wrong.size(); ++i) {
    ScriptedHost host(router.address());
    ASSERT_TRUE(host.Join()) << i;
    ASSERT_TRUE(router.WaitFor(GroupState::kReady));
    const SlotHandle slot = router.Publish(1);
    const auto job = host.Await<LinkJob>();
    ASSERT_TRUE(job) << i;
    wrong[i](host, *job);
    EXPECT_EQ(router.End(slot).state, SlotState::kReturned) << i;
    EXPECT_EQ(router.State(), GroupState::kDead);
    router.arena().slots().Release(slot);
  }
}

TEST(HostileEnd, ResultsOfNoJobAndOfAnotherSessionChangeNothing) {
  RouterHost router;
  ScriptedHost host(router.address());
  ASSERT_TRUE(host.Join());
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  const SlotHandle slot = router.Publish(1);
  const auto job = host.Await<LinkJob>();
  ASSERT_TRUE(job);
  const JobView view = router.View(slot);
  std::vector<std::byte> results(view.result_bytes().size());
  SequenceResult mad{0, 0, INT32_MAX, INT32_MIN};
  std::memcpy(results.data(), &mad, sizeof mad);
  host.Send(LinkResult{job->id + 1, Code::kOk, 0, 0, results});
  ++host.session;
  host.Send(LinkResult{job->id, Code::kOk, 0, 0, results});
  --host.session;
  host.Send(LinkResult{job->id, Code::kTooLarge, 0, 0, {}});
  host.Send(LinkResult{job->id, Code::kOk, 0, 0, results});  // the second answer
  const SlotOutcome outcome = router.End(slot);
  EXPECT_EQ(outcome.state, SlotState::kFailed);
  EXPECT_EQ(outcome.code, Code::kTooLarge);

  const SlotHandle next = router.Publish(1);
  const auto its = host.Await<LinkJob>();
  ASSERT_TRUE(its);
  host.Send(LinkResult{its->id, Code::kOk, 0, INT64_MAX, results});
  EXPECT_EQ(router.End(next).state, SlotState::kDone);
  const JobView read = router.View(next);
  EXPECT_EQ(read.result(0).cached_tokens, 0);
  EXPECT_LT(read.result(0).argmax_token, kVocabulary);
  EXPECT_GE(read.queue_us(), 0);
}

// The other way round: a router whose jobs are damaged. Under the sanitizers this also shows that nothing is written outside a
// slot.
TEST(HostileEnd, DamagedJobsAreDoneOrFailedOneByOne) {
  const ListeningSocket port;
  const auto link = *LinkListener::Create(port.fd(), std::nullopt);
  LendingHost host(port.address());
  host.GroupReady();

  LinkListener::Peer peer;
  std::vector<std::byte> frame, sent;
  uint64_t session = 0;
  size_t done = 0, failed = 0;
  const auto send = [&](const LinkBody& body) {
    WriteLinkMessage({session, body}, sent);
    link->Send(peer, sent);
  };
  bool ready = false;
  const auto receive = [&] {
    link->Wait(-1, MonotonicUs() + 20'000);
    while (link->Receive(peer, frame)) {
      LinkMessage message;
      ASSERT_TRUE(ReadLinkMessage(frame, message).ok());
      if (std::get_if<LinkHello>(&message.body)) {
        ++session;
        ready = false;
        send(LinkWelcome{0});
      }
      if (const auto* const status = std::get_if<LinkStatus>(&message.body))
        ready = status->state == LinkGroupState::kReady;
      if (const auto* const result = std::get_if<LinkResult>(&message.body))
        ++(result->code == Code::kOk ? done : failed);
    }
    if (session != 0) send(LinkAlive{});
  };
  const auto eventually = [&](const std::function<bool()>& condition) {
    const int64_t until_us = Soon();
    while (!condition() && MonotonicUs() < until_us) receive();
    return condition();
  };
  ASSERT_TRUE(eventually([&] { return ready; }));

  alignas(8) std::array<std::byte, 4096> memory;
  JobWriter writer = *JobWriter::Begin(memory, {1, 3, 2, 3}, 0, 0);
  writer.SetPrefix(std::vector<int32_t>{1});
  writer.AddSequence(std::vector<int32_t>{2, 3}, std::vector<int32_t>{10, 11});
  writer.AddSequence(std::vector<int32_t>{4}, std::vector<int32_t>{12});
  writer.Finish();
  const std::span<const std::byte> good = JobView::Open(memory, kVocabulary)->job_bytes();

  std::mt19937 random(30);
  size_t jobs = 0;
  for (uint64_t id = 1; id <= 1000; ++id) {
    std::vector<std::byte> bytes(good.begin(), good.end());
    for (size_t n = random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    if (random() % 8 == 0) bytes.resize(random() % (bytes.size() + 1));
    send(LinkJob{id, 20'000'000, 0, bytes});
    ++jobs;
    if (id % 20 == 0) {
      ASSERT_TRUE(eventually([&] { return done + failed == jobs; })) << done << " + " << failed;
    }
  }
  EXPECT_EQ(session, 1u) << "a damaged job is no reason to leave";
  EXPECT_GT(done, 100u);
  EXPECT_GT(failed, 100u);
  EXPECT_EQ(static_cast<size_t>(host.answers()), done);
  EXPECT_EQ(host.arena().slots().InUse(), 0u);
}

}  // namespace
}  // namespace sysone
