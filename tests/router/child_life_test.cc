// SPDX-License-Identifier: Apache-2.0
#include "router/child_life.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

constexpr int64_t kMs = 1'000;
constexpr int64_t kSecond = 1'000'000;

using State = ChildLife::State;

TEST(ChildLife, StartsAtOnce) {
  const ChildLife life{RestartPolicy()};
  EXPECT_EQ(life.state(), State::kWaiting);
  EXPECT_EQ(life.restart_at_us(), 0);
  EXPECT_EQ(life.restarts(), 0);
}

TEST(ChildLife, TheDelayDoublesUpToItsLimitForAChildThatOnceWorked) {
  ChildLife life{RestartPolicy()};
  int64_t now = 5 * kSecond;
  const int64_t expected_ms[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
  for (const int64_t delay : expected_ms) {
    life.Started(now);
    life.BecameReady(now + 1);
    now += kSecond;
    life.Died(now, false);
    ASSERT_EQ(life.state(), State::kWaiting);
    EXPECT_EQ(life.restart_at_us() - now, delay * kMs);
    now = life.restart_at_us();
  }
  EXPECT_EQ(life.restarts(), 8);
}

TEST(ChildLife, TheDelayDoesNotOverflowAfterManyDeaths) {
  ChildLife life{RestartPolicy()};
  life.Started(0);
  life.BecameReady(0);
  for (int death = 0; death < 200; ++death) {
    life.Died(0, false);
    EXPECT_GT(life.restart_at_us(), 0);
    EXPECT_LE(life.restart_at_us(), 10 * kSecond);
    life.Started(0);
  }
}

TEST(ChildLife, EachFiveSecondsOfBeingReadyMakeUpForOneDeath) {
  ChildLife life{RestartPolicy()};
  for (int i = 0; i < 4; ++i) {
    life.Started(0);
    life.BecameReady(0);
    life.Died(1, false);
  }
  EXPECT_EQ(life.restart_at_us(), 1 + 800 * kMs);
  life.Started(kSecond);
  life.BecameReady(2 * kSecond);
  life.Died(14 * kSecond, false);  // 4 - 2 + 1
  EXPECT_EQ(life.restart_at_us(), 14 * kSecond + 400 * kMs);
  life.Started(15 * kSecond);
  life.BecameReady(15 * kSecond);
  life.Died(1000 * kSecond, false);
  EXPECT_EQ(life.restart_at_us(), 1000 * kSecond + 100 * kMs);
}

TEST(ChildLife, AChildThatWasNeverReadyIsGivenUpAtTheThirdDeath) {
  ChildLife life{RestartPolicy()};
  for (int death = 1; death <= 3; ++death) {
    ASSERT_EQ(life.state(), State::kWaiting);
    life.Started(death * kSecond);
    life.Died(death * kSecond + 1, false);
  }
  EXPECT_EQ(life.state(), State::kGivenUp);
  EXPECT_FALSE(life.ever_ready());
}

TEST(ChildLife, AHopelessEndGivesUpAtOnceOnlyBeforeTheFirstReady) {
  ChildLife fresh{RestartPolicy()};
  fresh.Started(0);
  fresh.Died(1, true);
  EXPECT_EQ(fresh.state(), State::kGivenUp);

  ChildLife proven{RestartPolicy()};
  proven.Started(0);
  proven.BecameReady(1);
  for (int death = 0; death < 10; ++death) {
    proven.Died(2, true);
    ASSERT_EQ(proven.state(), State::kWaiting);
    proven.Started(3);
  }
}

TEST(ChildLife, ReadyCountsOncePerIncarnation) {
  ChildLife life{RestartPolicy()};
  life.Started(0);
  life.BecameReady(1);
  life.Died(2, false);
  life.Started(3);
  life.BecameReady(4);
  // A repeated report must not restart the time that counts.
  life.BecameReady(29 * kSecond);
  life.Died(31 * kSecond, false);
  EXPECT_EQ(life.restart_at_us(), 31 * kSecond + 100 * kMs);
}

TEST(Heartbeat, IsFineThenLateThenStuck) {
  const HeartbeatLimits limits{5 * kSecond, 60 * kSecond};
  EXPECT_EQ(JudgeHeartbeat(10 * kSecond, 10 * kSecond, limits), Heartbeat::kFine);
  EXPECT_EQ(JudgeHeartbeat(15 * kSecond - 1, 10 * kSecond, limits), Heartbeat::kFine);
  EXPECT_EQ(JudgeHeartbeat(15 * kSecond, 10 * kSecond, limits), Heartbeat::kLate);
  EXPECT_EQ(JudgeHeartbeat(70 * kSecond - 1, 10 * kSecond, limits), Heartbeat::kLate);
  EXPECT_EQ(JudgeHeartbeat(70 * kSecond, 10 * kSecond, limits), Heartbeat::kStuck);
  // A beat written after our clock was read is no age at all.
  EXPECT_EQ(JudgeHeartbeat(10 * kSecond, 11 * kSecond, limits), Heartbeat::kFine);
}

}  // namespace
}  // namespace sysone
