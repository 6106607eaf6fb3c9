// Jobs of one host done on another: right, once, and never lost with the link or the host.
// SPDX-License-Identifier: Apache-2.0
#include "tests/link/two_hosts.h"

namespace sysone {
namespace {

void ExpectAnswered(RouterHost& router, SlotHandle slot) {
  const SlotOutcome outcome = router.End(slot);
  ASSERT_EQ(outcome.state, SlotState::kDone) << SlotStateName(outcome.state);
  const JobView job = router.View(slot);
  for (int32_t s = 0; s < job.sequence_count(); ++s) {
    for (size_t l = 0; l < job.label_logits(s).size(); ++l)
      EXPECT_EQ(job.label_logits(s)[l], AnswerTo(job, s, l));
    EXPECT_EQ(job.result(s).cached_tokens, 1);
  }
  EXPECT_GE(job.queue_us(), 0);
  EXPECT_EQ(job.pass_us(), 7);
  router.arena().slots().Release(slot);
}

TEST(TwoHosts, AJobIsAnsweredByTheOtherHostAndTheBoardShowsItsLine) {
  RouterHost router;
  EXPECT_EQ(router.State(), GroupState::kLoading);
  LendingHost host(router.address());
  host.GroupReady();
  host.arena().board().SetRate(kGroup0, {1234, 56});
  host.arena().board().RecordKv(kGroup0, {2, 3, 40, 4096});
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  for (int32_t first = 1; first < 20; ++first) ExpectAnswered(router, router.Publish(first));
  EXPECT_EQ(host.answers(), 19);
  ASSERT_TRUE(Eventually([&] {
    const GroupLoad line = router.arena().board().Read(kGroup0);
    return line.rate.tokens_per_second == 1234 && line.total_tokens == 19 * 4;
  }));
  const GroupLoad line = router.arena().board().Read(kGroup0);
  EXPECT_EQ(line.rate.tokens_a_pass, 56);
  EXPECT_EQ(line.max_model_len, 4096u);
  EXPECT_EQ(line.kv.blocks_in_use, 2u);
  EXPECT_EQ(line.kv.blocks, 40u);
  EXPECT_EQ(line.total_jobs, 19u);
  EXPECT_EQ(line.total_batches, 19u);
  EXPECT_LE(MonotonicUs() - line.mirrored_us, kTestTimeoutUs);
  EXPECT_EQ(host.arena().slots().InUse(), 0u);
}

TEST(TwoHosts, ManyJobsAtOnceFindTheirWayThroughAFewSlots) {
  RouterHost router;
  LendingHost host(router.address(), 2);
  host.GroupReady();
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  host.HoldAnswers(true);
  std::vector<SlotHandle> slots;
  for (int32_t first = 1; first <= 50; ++first) slots.push_back(router.Publish(first));
  ASSERT_TRUE(Eventually([&] { return host.arena().slots().InUse() == 3; })) << "all of its slots";
  host.HoldAnswers(false);
  for (const SlotHandle slot : slots) ExpectAnswered(router, slot);
  EXPECT_EQ(host.answers(), 50);
}

TEST(TwoHosts, AHostThatVanishesGivesItsJobsBackAndAnotherTakesItsPlace) {
  RouterHost router;
  std::vector<SlotHandle> slots;
  {
    LendingHost host(router.address());
    host.GroupReady();
    ASSERT_TRUE(router.WaitFor(GroupState::kReady));
    host.HoldAnswers(true);
    for (int32_t first = 1; first <= 5; ++first) slots.push_back(router.Publish(first));
    ASSERT_TRUE(Eventually([&] { return host.arena().slots().InUse() == 5; }));
  }
  for (const SlotHandle slot : slots) {
    EXPECT_EQ(router.End(slot).state, SlotState::kReturned);
    EXPECT_TRUE(router.arena().slots().TakeBack(slot));
  }
  EXPECT_EQ(router.State(), GroupState::kDead);
  // Published from an older snapshot: it does not stay there.
  router.Republish(slots[0]);
  EXPECT_EQ(router.End(slots[0]).state, SlotState::kReturned);
  EXPECT_TRUE(router.arena().slots().TakeBack(slots[0]));

  LendingHost next(router.address());
  next.GroupReady();
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  for (const SlotHandle slot : slots) router.Republish(slot);
  for (const SlotHandle slot : slots) ExpectAnswered(router, slot);
  EXPECT_EQ(next.answers(), 5);
}

// A job of one host that is in work on another, and stays so.
class TwoHostsAndAJob : public testing::Test {
 protected:
  void SetUp() override {
    host.GroupReady();
    ASSERT_TRUE(router.WaitFor(GroupState::kReady));
    host.HoldAnswers(true);
    slot = router.Publish(3);
    ASSERT_TRUE(Eventually([&] { return host.arena().slots().InUse() == 1; }));
  }

  RouterHost router;
  LendingHost host{router.address()};
  SlotHandle slot;
};

TEST_F(TwoHostsAndAJob, AGroupThatDiesOnItsHostGivesItsJobsBackAndServesAgain) {
  host.GroupDies();
  EXPECT_EQ(router.End(slot).state, SlotState::kReturned);
  EXPECT_TRUE(Eventually([&] { return host.arena().slots().InUse() == 0; }));
  EXPECT_TRUE(router.arena().slots().TakeBack(slot));
  host.HoldAnswers(false);
  host.GroupReady();
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  router.Republish(slot);
  ExpectAnswered(router, slot);
  EXPECT_EQ(host.answers(), 1);
}

TEST_F(TwoHostsAndAJob, AJobThatNobodyWaitsForIsGivenUpOnBoth) {
  router.arena().slots().Release(slot);
  EXPECT_TRUE(Eventually([&] { return host.arena().slots().InUse() == 0; }));
  EXPECT_TRUE(Eventually([&] { return router.arena().slots().InUse() == 0; }));
}

TEST(TwoHosts, ADeadlineHoldsOnTheOtherHost) {
  RouterHost router;
  LendingHost host(router.address());
  host.GroupReady();
  ASSERT_TRUE(router.WaitFor(GroupState::kReady));
  host.HoldAnswers(true);
  const int64_t deadline_us = MonotonicUs() + 100'000;
  const SlotHandle slot = router.Publish(3, 0, deadline_us);
  ASSERT_TRUE(Eventually([&] { return MonotonicUs() > deadline_us + 50'000; }));
  host.HoldAnswers(false);
  const SlotOutcome outcome = router.End(slot);
  EXPECT_EQ(outcome.state, SlotState::kFailed);
  EXPECT_EQ(outcome.code, Code::kDeadlineExceeded);
}

TEST_F(TwoHostsAndAJob, AHostThatEndsFinishesItsJobsFirst) {
  host.Drain();
  ASSERT_TRUE(router.WaitFor(GroupState::kDraining));
  EXPECT_FALSE(host.intake_ended());
  host.HoldAnswers(false);
  ExpectAnswered(router, slot);
  EXPECT_TRUE(Eventually([&] { return host.intake_ended(); }));
  EXPECT_TRUE(router.WaitFor(GroupState::kDead));
}

TEST_F(TwoHostsAndAJob, ARouterThatEndsFinishesItsJobsFirst) {
  std::thread ending([&] { router.End(); });
  EXPECT_TRUE(router.WaitFor(GroupState::kDraining));
  host.HoldAnswers(false);
  ending.join();
  ExpectAnswered(router, slot);
}

TEST(TwoHosts, HostsTakeThePlacesThatThereAre) {
  RouterHost router(2);
  LendingHost one(router.address()), two(router.address());
  one.GroupReady();
  two.GroupReady();
  ASSERT_TRUE(router.WaitFor(GroupState::kReady, 0));
  ASSERT_TRUE(router.WaitFor(GroupState::kReady, 1));
  ExpectAnswered(router, router.Publish(1, 0));
  ExpectAnswered(router, router.Publish(2, 1));
  EXPECT_EQ(one.answers() + two.answers(), 2);
  EXPECT_EQ(one.answers(), 1);
  // A third one waits until one of them is gone.
  LendingHost three(router.address());
  three.GroupReady();
  one.Vanish();
  EXPECT_TRUE(Eventually([&] {
    for (uint32_t group = 0; group < 2; ++group) {
      const SlotHandle slot = router.Publish(7, group);
      router.End(slot);
      router.arena().slots().Release(slot);
    }
    return three.answers() > 0;
  }));
}

}  // namespace
}  // namespace sysone
