// SPDX-License-Identifier: Apache-2.0
#include "router/reattach_plan.h"

#include <gtest/gtest.h>

#include <set>

namespace sysone {
namespace {

using Keep = std::vector<bool>;
using Strays = std::vector<ProcessIdentity>;

constexpr pid_t kKeeper = 10;

ProcessIdentity Process(uint64_t pid, uint64_t start = 1) { return {pid << 40 | start}; }

class ReattachPlanTest : public testing::Test {
 protected:
  // A child of the keeper that lives.
  void Orphan(ProcessIdentity process) {
    orphans_.push_back({process, kKeeper});
    alive_.insert(process.word);
  }
  void Registered(ProcessIdentity process, pid_t parent) {
    registered_.push_back({process, parent});
    alive_.insert(process.word);
  }
  ReattachPlan Plan(const std::vector<ChildRecord>& records) const {
    const auto alive = [this](ProcessIdentity process) { return alive_.contains(process.word); };
    return PlanReattach(records, alive, orphans_, registered_);
  }
  static ChildRecord Record(ProcessIdentity process) { return {process, {}, ChildLife()}; }

 private:
  std::vector<SeenProcess> orphans_;
  std::vector<SeenProcess> registered_;
  std::set<uint64_t> alive_;
};

TEST_F(ReattachPlanTest, WhoWasRecordedAndLivesIsKept) {
  Orphan(Process(20));
  Registered(Process(20), kKeeper);
  const ReattachPlan plan = Plan({Record(Process(20)), Record({}), Record(Process(21))});
  EXPECT_EQ(plan.keep, (Keep{true, false, false}));
  EXPECT_EQ(plan.strays, Strays());
}

TEST_F(ReattachPlanTest, APidThatAnotherProcessHasNowIsNotKept) {
  Orphan(Process(20, 2));
  const ReattachPlan plan = Plan({Record(Process(20, 1))});
  EXPECT_EQ(plan.keep, (Keep{false}));
  EXPECT_EQ(plan.strays, (Strays{Process(20, 2)}));
}

TEST_F(ReattachPlanTest, WhatWasStartedButNotRecordedIsAStray) {
  Orphan(Process(20));
  Orphan(Process(30));
  EXPECT_EQ(Plan({Record(Process(20)), Record({})}).strays, (Strays{Process(30)}));
}

TEST_F(ReattachPlanTest, ARankBelongsToItsMpirun) {
  Orphan(Process(20));
  Registered(Process(25), 20);
  const ReattachPlan plan = Plan({Record(Process(20))});
  EXPECT_EQ(plan.keep, (Keep{true}));
  EXPECT_EQ(plan.strays, Strays());
}

TEST_F(ReattachPlanTest, ARankWhoseMpirunIsDeadIsAStrayOnce) {
  Orphan(Process(25));
  Registered(Process(25), kKeeper);
  const ReattachPlan plan = Plan({Record(Process(20))});
  EXPECT_EQ(plan.keep, (Keep{false}));
  EXPECT_EQ(plan.strays, (Strays{Process(25)}));
}

TEST_F(ReattachPlanTest, ChildrenThatWentToAnotherParentAreKept) {
  // A keeper died, too: what earlier routers started is no child of this one.
  Registered(Process(20), 1);
  const ReattachPlan plan = Plan({Record(Process(20))});
  EXPECT_EQ(plan.keep, (Keep{true}));
  EXPECT_EQ(plan.strays, Strays());
}

TEST_F(ReattachPlanTest, WithoutRecordsEverybodyIsAStray) {
  Orphan(Process(20));
  Registered(Process(30), 1);
  EXPECT_EQ(Plan({}).strays, (Strays{Process(20), Process(30)}));
}

}  // namespace
}  // namespace sysone
