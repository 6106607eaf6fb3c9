// How a group's rate is measured: by time, known late, following, and forgotten. All times are arguments.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/rate_meter.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

// A meter, and the time of its machine.
struct Measured {
  void Pass(uint64_t tokens, int64_t us) {
    now_us += us;
    meter.Record(tokens, static_cast<uint64_t>(us), now_us);
  }
  GroupRate rate() const { return meter.Rate(now_us); }
  RateMeter meter;
  int64_t now_us = 1'000'000'000'000;  // any
};

TEST(RateMeterTest, ARateIsKnownAfterASecondOfPassesAndNotBefore) {
  Measured group;
  EXPECT_EQ(group.rate().tokens_per_second, 0);
  for (int n = 0; n < 10; ++n) group.Pass(300, 100'000);  // 1 s, which weighs 0.91
  EXPECT_EQ(group.rate().tokens_per_second, 0);
  EXPECT_EQ(group.rate().tokens_a_pass, 0);
  for (int n = 0; n < 2; ++n) group.Pass(300, 100'000);
  EXPECT_FLOAT_EQ(group.rate().tokens_per_second, 3000);
  EXPECT_FLOAT_EQ(group.rate().tokens_a_pass, 300);
}

TEST(RateMeterTest, JobsThatTookNoPassSayNothing) {
  Measured group;
  for (int n = 0; n < 1000; ++n) group.Pass(0, 5'000);
  EXPECT_EQ(group.rate().tokens_per_second, 0);
  group.Pass(10'000, 0);
  for (int n = 0; n < 20; ++n) group.Pass(300, 100'000);
  EXPECT_FLOAT_EQ(group.rate().tokens_per_second, 3000);
  for (int n = 0; n < 1000; ++n) group.Pass(0, 5'000);
  EXPECT_FLOAT_EQ(group.rate().tokens_per_second, 3000);
}

TEST(RateMeterTest, PassesWeighByTheirTimeSoAShortOddOneChangesLittle) {
  Measured steady;
  for (int n = 0; n < 100; ++n) steady.Pass(300, 100'000);
  steady.Pass(3000, 10'000);  // a hundred times faster, for a tenth of a pass's time
  // 10 ms of memory's 5 s × (1 − e^-2 of the first 10 s): 99 × 0.01 / 4.3 more.
  EXPECT_NEAR(steady.rate().tokens_per_second, 3000 * 1.23, 3000 * 0.01);
  Measured cold;  // three times slower at first, as long as a first pass takes
  cold.Pass(100, 100'000);
  while (cold.rate().tokens_per_second == 0) cold.Pass(300, 100'000);
  EXPECT_GT(cold.rate().tokens_per_second, 3000 * 0.92);
  EXPECT_LT(cold.rate().tokens_per_second, 3000);
}

TEST(RateMeterTest, ItFollowsAChangeWithinItsMemoryAndOnePassNeverOutweighsThat) {
  Measured group;
  for (int n = 0; n < 200; ++n) group.Pass(100, 100'000);  // 20 s
  for (int n = 0; n < 50; ++n) group.Pass(300, 100'000);   // 5 s, after which the old weigh 1/e
  EXPECT_NEAR(group.rate().tokens_per_second, 3000 - 2000 * 0.3679, 40);
  for (int n = 0; n < 250; ++n) group.Pass(300, 100'000);
  EXPECT_NEAR(group.rate().tokens_per_second, 3000, 10);
  group.Pass(100'000, 100'000'000);  // an endless pass is the whole memory …
  EXPECT_NEAR(group.rate().tokens_per_second, 1000, 1);
  for (int n = 0; n < 50; ++n) group.Pass(300, 100'000);  // … and no more than that
  EXPECT_NEAR(group.rate().tokens_per_second, 3000 - 2000 * 0.3679, 40);
}

TEST(RateMeterTest, AGroupThatComputedNothingForAMinuteIsMeasuredAnew) {
  Measured group;
  for (int n = 0; n < 20; ++n) group.Pass(100, 100'000);
  group.now_us += RateMeter::kForgetAfterUs;
  EXPECT_FLOAT_EQ(group.rate().tokens_per_second, 1000);
  ++group.now_us;
  EXPECT_EQ(group.rate().tokens_per_second, 0);
  group.Pass(300, 100'000);
  EXPECT_EQ(group.rate().tokens_per_second, 0) << "the old passes count no more";
  for (int n = 0; n < 20; ++n) group.Pass(300, 100'000);
  EXPECT_FLOAT_EQ(group.rate().tokens_per_second, 3000);
}

}  // namespace
}  // namespace sysone
