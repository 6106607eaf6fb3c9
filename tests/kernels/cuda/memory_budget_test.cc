// What fits a device and what is said when something does not, with made-up figures.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_budget.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

class MemoryBudgetTest : public ::testing::Test {
 protected:
  // A device of 1000 MiB, 900 of which were free.
  MemoryBudget Budget(double utilization) {
    return MemoryBudget(utilization, {900 * kMiB, 1000 * kMiB}, 50 * kMiB, [this] {
      return DeviceMemory{free_mib_ * kMiB, 1000 * kMiB};
    });
  }
  int64_t free_mib_ = 900;
};

TEST_F(MemoryBudgetTest, WhatIsLeftIsTheShareOfTheDeviceLessOwnUseAndReserve) {
  EXPECT_EQ(Budget(0.8).Left(), 750 * kMiB);
  free_mib_ = 600;  // 300 of them its own by now
  EXPECT_EQ(Budget(0.8).Left(), 450 * kMiB);
  free_mib_ = 60;
  EXPECT_EQ(Budget(0.8).Left(), 0);
}

TEST_F(MemoryBudgetTest, WhatOthersUseIsNotLeft) {
  EXPECT_EQ(Budget(1).Left(), 850 * kMiB);  // 100 MiB were others'
}

TEST_F(MemoryBudgetTest, AllThatIsLeftMayBeTaken) {
  MemoryBudget budget = Budget(0.8);
  EXPECT_TRUE(budget.Take(750 * kMiB));
  EXPECT_TRUE(budget.status().ok());
}

TEST_F(MemoryBudgetTest, AfterTheFirstThatDoesNotFitNothingDoesAndTheErrorCountsAll) {
  MemoryBudget budget = Budget(0.8);
  EXPECT_TRUE(budget.Take(300 * kMiB));
  free_mib_ = 600;
  EXPECT_FALSE(budget.Take(500 * kMiB));
  EXPECT_FALSE(budget.Take(40 * kMiB));
  const Status status = budget.status();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  const auto says = [&](const char* text) {
    EXPECT_NE(status.message().find(text), std::string::npos) << text << " in " << status.message();
  };
  says("needs 840 MiB");
  says("there are 750 MiB");
  says("900 of 1000 MiB were free");
  says("--gpu-memory-utilization 0.80");
  says("--tensor-parallel-size");
}

}  // namespace
}  // namespace sysone
