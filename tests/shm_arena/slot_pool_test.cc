// Each transition of a slot, where it is legal and where it is not.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/slot_pool.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

class SlotPoolTest : public testing::Test {
 protected:
  SlotHandle Claimed() { return *pool().Claim(owner_, 100); }
  SlotHandle Ready() {
    const SlotHandle slot = Claimed();
    EXPECT_TRUE(pool().Publish(slot, kGroup0, {}));
    return slot;
  }
  SlotHandle Running() {
    const SlotHandle slot = Ready();
    EXPECT_TRUE(pool().Take(slot, kGroup0));
    return slot;
  }
  SlotHandle Done() {
    const SlotHandle slot = Running();
    EXPECT_TRUE(pool().Complete(slot));
    return slot;
  }
  SlotHandle Failed() {
    const SlotHandle slot = Running();
    EXPECT_TRUE(pool().Fail(slot, Code::kDeadlineExceeded));
    return slot;
  }
  SlotHandle Returned() {
    const SlotHandle slot = Ready();
    EXPECT_EQ(pool().ReturnReady(kGroup0), 1u);
    return slot;
  }
  SlotHandle Abandoned() {
    const SlotHandle slot = Running();
    pool().Release(slot);
    return slot;
  }
  SlotHandle Free() {
    const SlotHandle slot = Claimed();
    pool().Release(slot);
    return {slot.index, slot.generation + 1};
  }
  SlotHandle Make(SlotState state) {
    switch (state) {
      case SlotState::kFree:
        return Free();
      case SlotState::kClaimed:
        return Claimed();
      case SlotState::kReady:
        return Ready();
      case SlotState::kRunning:
        return Running();
      case SlotState::kDone:
        return Done();
      case SlotState::kFailed:
        return Failed();
      case SlotState::kReturned:
        return Returned();
      case SlotState::kAbandoned:
        return Abandoned();
    }
    return {};
  }
  SlotPool& pool() { return arena_.slots(); }
  SlotState State(SlotHandle slot) { return pool().word(slot.index).state; }
  // Frees whatever a test left in the slot.
  void Clean(SlotHandle slot) {
    pool().Release(slot);
    pool().ReturnGroup(kGroup0);
    pool().ReturnGroup(kGroup1);
    pool().Release(slot);
    ASSERT_EQ(pool().InUse(), 0u);
  }

  Arena arena_ = Arena::InMemory(SmallConfig());
  ProcessId owner_ = AddProcess(arena_, ProcessRole::kApiServer, 0);
};

constexpr SlotState kAllStates[] = {SlotState::kFree,     SlotState::kClaimed,  SlotState::kReady,
                                    SlotState::kRunning,  SlotState::kDone,     SlotState::kFailed,
                                    SlotState::kReturned, SlotState::kAbandoned};

TEST_F(SlotPoolTest, EachTransitionHappensFromItsOwnStatesAndFromNoOther) {
  struct Transition {
    const char* name;
    std::function<bool(SlotHandle)> call;
    std::map<SlotState, SlotState> moves;  // from → to
    std::set<SlotState> says_true;
  };
  const Transition transitions[] = {
      {"publish",
       [&](SlotHandle s) { return pool().Publish(s, kGroup1, {}); },
       {{SlotState::kClaimed, SlotState::kReady}},
       {SlotState::kClaimed}},
      {"take",
       [&](SlotHandle s) { return pool().Take(s, kGroup0); },
       {{SlotState::kReady, SlotState::kRunning}},
       {SlotState::kReady}},
      {"complete",
       [&](SlotHandle s) { return pool().Complete(s); },
       {{SlotState::kRunning, SlotState::kDone}, {SlotState::kAbandoned, SlotState::kFree}},
       {SlotState::kRunning}},
      {"fail",
       [&](SlotHandle s) { return pool().Fail(s, Code::kInternal); },
       {{SlotState::kRunning, SlotState::kFailed}, {SlotState::kAbandoned, SlotState::kFree}},
       {SlotState::kRunning}},
      {"take back",
       [&](SlotHandle s) { return pool().TakeBack(s); },
       {{SlotState::kReturned, SlotState::kClaimed}},
       {SlotState::kReturned}},
      {"release",
       [&](SlotHandle s) { return pool().Release(s), true; },
       {{SlotState::kClaimed, SlotState::kFree},
        {SlotState::kReady, SlotState::kFree},
        {SlotState::kRunning, SlotState::kAbandoned},
        {SlotState::kDone, SlotState::kFree},
        {SlotState::kFailed, SlotState::kFree},
        {SlotState::kReturned, SlotState::kFree}},
       {kAllStates, kAllStates + 8}},
      {"return group",
       [&](SlotHandle) { return pool().ReturnGroup(kGroup0) == 1; },
       {{SlotState::kReady, SlotState::kReturned},
        {SlotState::kRunning, SlotState::kReturned},
        {SlotState::kAbandoned, SlotState::kFree}},
       {SlotState::kReady, SlotState::kRunning, SlotState::kAbandoned}},
      {"return ready",
       [&](SlotHandle) { return pool().ReturnReady(kGroup0) == 1; },
       {{SlotState::kReady, SlotState::kReturned}},
       {SlotState::kReady}},
      {"reclaim owner",
       [&](SlotHandle) { return pool().ReclaimOwner(owner_) == 1; },
       {{SlotState::kClaimed, SlotState::kFree},
        {SlotState::kReady, SlotState::kFree},
        {SlotState::kRunning, SlotState::kAbandoned},
        {SlotState::kDone, SlotState::kFree},
        {SlotState::kFailed, SlotState::kFree},
        {SlotState::kReturned, SlotState::kFree}},
       {SlotState::kClaimed, SlotState::kReady, SlotState::kRunning, SlotState::kDone,
        SlotState::kFailed, SlotState::kReturned}},
  };
  for (const Transition& transition : transitions) {
    for (const SlotState from : kAllStates) {
      SCOPED_TRACE(std::string(transition.name) + " from " + SlotStateName(from));
      const SlotHandle slot = Make(from);
      ASSERT_EQ(State(slot), from);
      const bool said = transition.call(slot);
      EXPECT_EQ(said, transition.says_true.contains(from));
      const auto move = transition.moves.find(from);
      const SlotState expected = move == transition.moves.end() ? from : move->second;
      EXPECT_EQ(State(slot), expected);
      const bool freed = from != SlotState::kFree && expected == SlotState::kFree;
      EXPECT_EQ(pool().word(slot.index).generation, slot.generation + (freed ? 1 : 0));
      Clean(slot);
    }
  }
}

TEST_F(SlotPoolTest, AStaleHandleMovesNothing) {
  for (const SlotState state : kAllStates) {
    SCOPED_TRACE(SlotStateName(state));
    const SlotHandle slot = Make(state);
    const uint64_t before = pool().word(slot.index).Pack();
    for (const uint32_t generation : {slot.generation - 1, slot.generation + 1}) {
      const SlotHandle stale = {slot.index, generation};
      EXPECT_FALSE(pool().Publish(stale, kGroup0, {}));
      EXPECT_FALSE(pool().Take(stale, kGroup0));
      EXPECT_FALSE(pool().Complete(stale));
      EXPECT_FALSE(pool().Fail(stale, Code::kInternal));
      EXPECT_FALSE(pool().TakeBack(stale));
      EXPECT_FALSE(pool().Wanted(stale));
      SlotInfo info;
      EXPECT_FALSE(pool().ReadInfo(stale, &info));
      pool().Release(stale);
      EXPECT_EQ(pool().Look(stale).state, SlotState::kFree);
    }
    EXPECT_EQ(pool().word(slot.index).Pack(), before);
    Clean(slot);
  }
}

TEST_F(SlotPoolTest, TakeRefusesAnotherGroupARepeatedNoticeAndAnIndexFromOutside) {
  const SlotHandle slot = Ready();
  EXPECT_FALSE(pool().Take(slot, kGroup1));
  EXPECT_FALSE(pool().Take({pool().slot_count(), 0}, kGroup0));
  EXPECT_FALSE(pool().Take({UINT32_MAX, 0}, kGroup0));
  EXPECT_TRUE(pool().Take(slot, kGroup0));
  EXPECT_FALSE(pool().Take(slot, kGroup0));
}

TEST_F(SlotPoolTest, ClaimTakesTheSmallestClassThatFitsThenLargerOnesThenRefuses) {
  std::vector<SlotHandle> slots;
  for (int i = 0; i < 6; ++i) slots.push_back(*pool().Claim(owner_, 4096));
  std::set<uint32_t> indices;
  for (int i = 0; i < 6; ++i) {
    indices.insert(slots[static_cast<size_t>(i)].index);
    EXPECT_EQ(pool().payload(slots[static_cast<size_t>(i)]).size(), i < 4 ? 4096u : 16384u);
  }
  EXPECT_EQ(indices.size(), 6u);
  const Result<SlotHandle> refused = pool().Claim(owner_, 1);
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_EQ(arena_.metrics().Total(Counter::kSlotsClaimed), 6u);
  EXPECT_EQ(arena_.metrics().Total(Counter::kSlotsRefused), 1u);
  EXPECT_EQ(pool().Usage(0).high_water, 4u);
  EXPECT_EQ(pool().Usage(1).in_use, 2u);

  pool().Release(slots[5]);
  EXPECT_EQ(pool().Claim(owner_, 1)->index, slots[5].index);
  pool().Release(slots[0]);
  EXPECT_EQ(pool().Claim(owner_, 4097).status().code(),
            Code::kUnavailable);  // the free one is too small
  EXPECT_EQ(pool().Claim(owner_, 16385).status().code(), Code::kTooLarge);
}

TEST_F(SlotPoolTest, PayloadsDoNotOverlapAndLieInsideTheArena) {
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  for (uint32_t i = 0; i < pool().slot_count(); ++i) {
    const std::span<std::byte> payload = pool().payload({i, 0});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.data()) % kPageBytes, 0u);
    ranges.push_back({payload.data(), payload.data() + payload.size()});
  }
  std::sort(ranges.begin(), ranges.end());
  const auto* base = reinterpret_cast<const std::byte*>(arena_.header());
  EXPECT_GE(ranges.front().first, reinterpret_cast<const std::byte*>(base + ArenaRegions::kSlots) +
                                      pool().slot_count() * sizeof(SlotHeader));
  EXPECT_EQ(ranges.back().second, base + arena_.bytes());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST_F(SlotPoolTest, AReturnedJobKeepsItsPayloadAndRunsOnAnotherGroup) {
  const SlotHandle slot = Running();
  pool().payload(slot)[0] = std::byte{42};
  EXPECT_EQ(pool().ReturnGroup(kGroup0), 1u);
  EXPECT_EQ(pool().Look(slot).state, SlotState::kReturned);
  ASSERT_TRUE(pool().TakeBack(slot));
  ASSERT_TRUE(pool().Publish(slot, kGroup1, {}));
  EXPECT_FALSE(pool().Take(slot, kGroup0));
  EXPECT_FALSE(pool().Complete(slot));  // READY: the first group's answer comes too late
  ASSERT_TRUE(pool().Take(slot, kGroup1));
  EXPECT_EQ(pool().payload(slot)[0], std::byte{42});
  EXPECT_TRUE(pool().Complete(slot));
  EXPECT_EQ(pool().Look(slot).state, SlotState::kDone);
}

TEST_F(SlotPoolTest, ReadySlotsAreInTheOrderOfPublishingAndOfOneGroup) {
  const SlotHandle a = Claimed(), b = Claimed(), c = Claimed(), other = Claimed();
  ASSERT_TRUE(pool().Publish(c, kGroup0, {}));
  ASSERT_TRUE(pool().Publish(other, kGroup1, {}));
  ASSERT_TRUE(pool().Publish(a, kGroup0, {}));
  ASSERT_TRUE(pool().Publish(b, kGroup0, {}));
  EXPECT_EQ(pool().ReadySlots(kGroup0), (std::vector<SlotHandle>{c, a, b}));
  ASSERT_TRUE(pool().Take(a, kGroup0));
  EXPECT_EQ(pool().ReadySlots(kGroup0), (std::vector<SlotHandle>{c, b}));
}

TEST_F(SlotPoolTest, APublishedSlotTellsItsFields) {
  const SlotHandle slot = Claimed();
  ASSERT_TRUE(pool().Publish(slot, kGroup0,
                             {.now_us = 11, .deadline_us = 22, .priority = -3, .used_bytes = 44}));
  SlotInfo info;
  ASSERT_TRUE(pool().ReadInfo(slot, &info));
  EXPECT_EQ(info.owner, owner_);
  EXPECT_EQ(info.publish_us, 11);
  EXPECT_EQ(info.deadline_us, 22);
  EXPECT_EQ(info.priority, -3);
  EXPECT_EQ(info.used_bytes, 44u);
  EXPECT_EQ(info.publish_sequence, 1u);
}

TEST_F(SlotPoolTest, AFailureCarriesItsCode) {
  const SlotOutcome result = pool().Look(Failed());
  EXPECT_EQ(result.state, SlotState::kFailed);
  EXPECT_EQ(result.code, Code::kDeadlineExceeded);
}

TEST_F(SlotPoolTest, AWaitEndsAtItsDeadlineWithTheStateOfTheSlot) {
  EXPECT_EQ(WaitForEnd(arena_, owner_, Ready(), MonotonicUs() + 1'000).state, SlotState::kReady);
  EXPECT_EQ(WaitForEnd(arena_, owner_, Running(), 0).state, SlotState::kRunning);
}

TEST_F(SlotPoolTest, ASleepingOwnerIsWokenByTheAnswerAndByTheReturn) {
  for (const bool answered : {true, false}) {
    const SlotHandle slot = Ready();
    SlotOutcome result;
    const int64_t start_us = MonotonicUs();
    std::thread owner([&] { result = WaitForEnd(arena_, owner_, slot, start_us + 60'000'000); });
    ASSERT_TRUE(pool().Take(slot, kGroup0));
    if (answered) {
      pool().Complete(slot);
    } else {
      pool().ReturnGroup(kGroup0);
    }
    owner.join();
    EXPECT_EQ(result.state, answered ? SlotState::kDone : SlotState::kReturned);
    EXPECT_LT(MonotonicUs() - start_us, 30'000'000);
    Clean(slot);
  }
}

TEST_F(SlotPoolTest, ReclaimTouchesOnlyTheDeadOwnersSlots) {
  const ProcessId other = AddProcess(arena_, ProcessRole::kApiServer, 1);
  const SlotHandle mine = Ready();
  const SlotHandle theirs = *pool().Claim(other, 1);
  EXPECT_EQ(pool().ReclaimOwner(other), 1u);
  EXPECT_EQ(State(mine), SlotState::kReady);
  EXPECT_EQ(State(theirs), SlotState::kFree);
  EXPECT_EQ(arena_.metrics().Total(Counter::kSlotsReclaimed), 1u);
}

TEST_F(SlotPoolTest, AnAbandonedSlotNoLongerNamesItsOwner) {
  // Else the next process with the same id would reclaim it while the worker still writes.
  const SlotHandle slot = Abandoned();
  EXPECT_EQ(pool().ReclaimOwner(owner_), 0u);
  EXPECT_EQ(State(slot), SlotState::kAbandoned);
  EXPECT_FALSE(pool().Wanted(slot));
  EXPECT_FALSE(pool().Complete(slot));
  EXPECT_EQ(State(slot), SlotState::kFree);
}

TEST(SlotWordTest, PackAndUnpackAreInverse) {
  const SlotWord word = {0xdeadbeef, static_cast<ProcessId>(127), static_cast<GroupId>(63),
                         SlotState::kReturned};
  EXPECT_EQ(SlotWord::Unpack(word.Pack()), word);
  EXPECT_EQ(word.Pack(), 0xdeadbeef7f3f0006u);
  EXPECT_EQ(SlotWord::Unpack(SlotWord{}.Pack()), SlotWord{});
}

TEST_F(SlotPoolTest, WhatWasReleasedLastIsClaimedNext) {
  const SlotHandle kept = Claimed();
  const SlotHandle first = Claimed();
  pool().Release(first);
  for (uint32_t use = 1; use < 5; ++use) {
    const SlotHandle again = Claimed();
    EXPECT_EQ(again.index, first.index);
    EXPECT_EQ(again.generation, first.generation + use);
    pool().Release(again);
  }
  EXPECT_NE(Claimed().index, kept.index);
  EXPECT_NE(Claimed().index, first.index) << "it is taken";
}

}  // namespace
}  // namespace sysone
