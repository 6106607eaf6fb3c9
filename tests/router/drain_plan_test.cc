// SPDX-License-Identifier: Apache-2.0
#include "router/drain_plan.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

using Order = DrainPlan::Order;

TEST(DrainPlan, DoesNothingUntilAsked) {
  DrainPlan plan(100);
  EXPECT_FALSE(plan.active());
  EXPECT_EQ(plan.Next(0, 1, 1), Order::kNone);
  EXPECT_EQ(plan.Next(1'000'000, 0, 0), Order::kNone);
}

TEST(DrainPlan, EndsApiServersThenWorkersEachOrderOnce) {
  DrainPlan plan(100);
  plan.Request(10);
  EXPECT_EQ(plan.Next(10, 2, 1), Order::kEndApiServers);
  EXPECT_EQ(plan.Next(11, 2, 1), Order::kNone);
  EXPECT_EQ(plan.Next(12, 1, 1), Order::kNone);
  EXPECT_EQ(plan.Next(13, 0, 1), Order::kEndWorkers);
  EXPECT_EQ(plan.Next(14, 0, 1), Order::kNone);
  EXPECT_EQ(plan.Next(15, 0, 0), Order::kFinished);
}

TEST(DrainPlan, KillsWhenTimeIsOver) {
  DrainPlan plan(100);
  plan.Request(10);
  EXPECT_EQ(plan.Next(10, 1, 1), Order::kEndApiServers);
  EXPECT_EQ(plan.Next(109, 1, 1), Order::kNone);
  EXPECT_EQ(plan.Next(110, 1, 1), Order::kKillAll);
  EXPECT_EQ(plan.Next(111, 1, 1), Order::kNone);
  EXPECT_EQ(plan.Next(112, 0, 0), Order::kFinished);
  EXPECT_FALSE(plan.forced());
}

TEST(DrainPlan, ASecondSignalKillsAtOnce) {
  DrainPlan plan(1'000'000);
  plan.Request(10);
  EXPECT_EQ(plan.Next(10, 1, 1), Order::kEndApiServers);
  plan.Request(11);
  EXPECT_TRUE(plan.forced());
  EXPECT_EQ(plan.Next(11, 1, 1), Order::kKillAll);
}

TEST(DrainPlan, WithoutATimeoutNothingIsWaitedFor) {
  DrainPlan plan(0);
  plan.Request(10);
  EXPECT_EQ(plan.Next(10, 1, 1), Order::kKillAll);
}

TEST(DrainPlan, IsFinishedAtOnceWhenNobodyLives) {
  DrainPlan plan(100);
  plan.Request(10);
  EXPECT_EQ(plan.Next(10, 0, 0), Order::kFinished);
}

}  // namespace
}  // namespace sysone
