// Placement and admission of single jobs, and the load board. Whole loads: placement_simulation_test.cc.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/placement.h"

#include <set>
#include <thread>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

constexpr GroupId G(uint32_t index) { return static_cast<GroupId>(index); }

BoardSnapshot Board(std::initializer_list<GroupLoad> groups) {
  BoardSnapshot board;
  for (const GroupLoad& group : groups) board.groups[board.group_count++] = group;
  return board;
}

GroupLoad Ready(int64_t outstanding, float rate = 1000) {
  GroupLoad load;
  load.state = GroupState::kReady;
  load.max_model_len = 8192;
  load.rate = {rate, 100};
  load.outstanding_tokens = outstanding;
  load.outstanding_jobs = outstanding == 0 ? 0 : 1;
  return load;
}

GroupLoad In(GroupState state) {
  GroupLoad load = Ready(0);
  load.state = state;
  return load;
}

constexpr JobDemand kJob = {.tokens = 100, .longest_sequence = 100};

TEST(PlacementTest, OnlyReadyGroupsThatCanHoldTheLongestSequenceAreChosen) {
  EXPECT_EQ(PlaceJob(Board({}), kJob, 0), std::nullopt);
  EXPECT_EQ(
      PlaceJob(Board({In(GroupState::kLoading), In(GroupState::kDraining), In(GroupState::kDead)}),
               kJob, 0),
      std::nullopt);
  for (uint32_t rotation = 0; rotation < 4; ++rotation) {
    EXPECT_EQ(PlaceJob(Board({In(GroupState::kDead), Ready(5000), In(GroupState::kLoading)}), kJob,
                       rotation),
              G(1));
    EXPECT_EQ(
        PlaceJob(Board({Ready(0), Ready(0)}), {.tokens = 10, .longest_sequence = 8193}, rotation),
        std::nullopt);
    BoardSnapshot longer = Board({Ready(0), Ready(90000)});
    longer.groups[1].max_model_len = 16384;
    EXPECT_EQ(PlaceJob(longer, {.tokens = 10, .longest_sequence = 8193}, rotation), G(1));
  }
}

TEST(PlacementTest, LeastWorkInTimeWinsNotInTokens) {
  for (uint32_t rotation = 0; rotation < 4; ++rotation) {
    EXPECT_EQ(PlaceJob(Board({Ready(3000), Ready(1000)}), kJob, rotation), G(1));
    // 8000 tokens at 10000/s end before 2000 at 1000/s.
    EXPECT_EQ(PlaceJob(Board({Ready(2000, 1000), Ready(8000, 10000)}), kJob, rotation), G(1));
    // Both idle: the job itself ends sooner on the fast one.
    EXPECT_EQ(PlaceJob(Board({Ready(0, 1000), Ready(0, 10000)}), kJob, rotation), G(1));
    // Unknown rates: tokens.
    EXPECT_EQ(PlaceJob(Board({Ready(3000, 0), Ready(1000, 0)}), kJob, rotation), G(1));
    // One unknown rate counts as the mean of the others.
    EXPECT_EQ(PlaceJob(Board({Ready(3000, 500), Ready(1000, 0)}), kJob, rotation), G(1));
  }
}

TEST(PlacementTest, RatesThatDifferByNoiseCountAsEqual) {
  const BoardSnapshot noisy = Board({Ready(1000, 1000), Ready(1000, 760)});
  EXPECT_NE(PlaceJob(noisy, kJob, 0), PlaceJob(noisy, kJob, 1));
  const BoardSnapshot slower = Board({Ready(1000, 1000), Ready(1000, 740)});
  for (uint32_t rotation = 0; rotation < 4; ++rotation) {
    EXPECT_EQ(PlaceJob(slower, kJob, rotation), G(0));
    // Between equals, tokens decide.
    EXPECT_EQ(PlaceJob(Board({Ready(2000, 1000), Ready(1000, 760)}), kJob, rotation), G(1));
  }
}

TEST(PlacementTest, SlownessThatSmallerPassesExplainIsHalfForgiven) {
  const auto places = [](GroupRate small, GroupRate large) {
    GroupLoad a = Ready(1000), b = Ready(1000);
    a.rate = small;
    b.rate = large;
    return std::set{*PlaceJob(Board({a, b}), kJob, 0), *PlaceJob(Board({a, b}), kJob, 1)};
  };
  const std::set either = {G(0), G(1)}, only_large = {G(1)}, only_small = {G(0)};
  // A quarter of the tokens in each pass: up to twice slower is no difference …
  EXPECT_EQ(places({500, 100}, {1000, 400}), either);
  EXPECT_EQ(places({380, 100}, {1000, 400}), either);  // 2 · 380 is above kEqualRateShare of 1000
  // … and what goes beyond is one.
  EXPECT_EQ(places({370, 100}, {1000, 400}), only_large);
  // Passes of the same size, or larger ones, excuse nothing.
  EXPECT_EQ(places({500, 400}, {1000, 400}), only_large);
  EXPECT_EQ(places({500, 4000}, {1000, 400}), only_large);
  // However small, nobody becomes faster than the fastest.
  EXPECT_EQ(places({900, 1}, {1000, 400}), either);
  EXPECT_EQ(places({1000, 1}, {500, 400}), only_small);
}

TEST(PlacementTest, NearEqualsTakeTurnsAndOthersDoNot) {
  // 5 % of 10100 = 505 tokens.
  for (const int64_t other : {10000, 10500, 9600}) {
    const BoardSnapshot board = Board({Ready(10000), Ready(other), Ready(20000)});
    EXPECT_NE(PlaceJob(board, kJob, 0), PlaceJob(board, kJob, 1)) << other;
    EXPECT_NE(PlaceJob(board, kJob, 0), G(2));
    EXPECT_NE(PlaceJob(board, kJob, 1), G(2));
  }
  for (const int64_t other : {10600, 20000}) {
    const BoardSnapshot board = Board({Ready(10000), Ready(other)});
    EXPECT_EQ(PlaceJob(board, kJob, 0), G(0)) << other;
    EXPECT_EQ(PlaceJob(board, kJob, 1), G(0)) << other;
  }
  // 64 tokens.
  EXPECT_NE(PlaceJob(Board({Ready(0), Ready(60)}), kJob, 0),
            PlaceJob(Board({Ready(0), Ready(60)}), kJob, 1));
  EXPECT_EQ(PlaceJob(Board({Ready(0), Ready(70)}), kJob, 1), G(0));
}

JobDemand Held(int64_t tokens, std::initializer_list<uint32_t> held) {
  JobDemand job = {.tokens = tokens, .longest_sequence = 100};
  std::copy(held.begin(), held.end(), job.held.begin());
  return job;
}

TEST(PlacementTest, WhatAGroupHoldsNeedNotBeComputedThere) {
  for (uint32_t rotation = 0; rotation < 4; ++rotation) {
    // 1000 tokens of which 900 are there end before 1000 on an idle group …
    EXPECT_EQ(PlaceJob(Board({Ready(0), Ready(800)}), Held(1000, {0, 900}), rotation), G(1));
    // … but not behind a queue that is longer than what is spared.
    EXPECT_EQ(PlaceJob(Board({Ready(0), Ready(1100)}), Held(1000, {0, 900}), rotation), G(0));
  }
}

TEST(PlacementTest, AmongNearEqualsTheOneThatHoldsMostIsTakenAndThoseThatHoldAlikeTakeTurns) {
  const BoardSnapshot idle = Board({Ready(0), Ready(0), Ready(0)});
  for (uint32_t rotation = 0; rotation < 4; ++rotation) {
    EXPECT_EQ(PlaceJob(idle, Held(60, {0, 40, 0}), rotation), G(1));
    EXPECT_EQ(PlaceJob(idle, Held(60, {60, 40, 0}), rotation), G(0));
  }
  std::set<GroupId> turns;
  for (uint32_t rotation = 0; rotation < 4; ++rotation)
    turns.insert(*PlaceJob(idle, Held(60, {60, 0, 60}), rotation));
  EXPECT_EQ(turns, (std::set{G(0), G(2)}));
}

TEST(PlacementTest, AJobThatIsHeldAsAWholeIsStillWork) {
  EXPECT_EQ(Held(60, {60, 20}).Work(G(0)), 1);
  EXPECT_EQ(Held(60, {60, 20}).Work(G(1)), 40);
}

TEST(PlacementTest, TheExcludedGroupIsTakenOnlyWhenNoOtherCan) {
  EXPECT_EQ(PlaceJob(Board({Ready(0), Ready(90000)}), kJob, 0, G(0)), G(1));
  EXPECT_EQ(PlaceJob(Board({Ready(0), In(GroupState::kDead)}), kJob, 0, G(0)), G(0));
}

// ---- admission ----

TEST(AdmissionTest, WithoutBoundsAndDeadlineEverythingIsAdmitted) {
  EXPECT_TRUE(AdmitJob(Board({Ready(1'000'000'000)}), G(0), kJob, 0, 0, {}).status.ok());
}

TEST(AdmissionTest, TheBoundOnRequestsCountsAllGroups) {
  const AdmissionLimits limits = {.max_queued_requests = 2};
  EXPECT_TRUE(AdmitJob(Board({Ready(10), Ready(0)}), G(1), kJob, 0, 0, limits).status.ok());
  const AdmissionVerdict refused =
      AdmitJob(Board({Ready(1000), Ready(3000)}), G(1), kJob, 0, 0, limits);
  EXPECT_EQ(refused.status.code(), Code::kUnavailable);
  EXPECT_FALSE(refused.refused_by_deadline);
  EXPECT_NEAR(static_cast<double>(refused.retry_after_us), 1e6,
              2);  // a mean job of 2000 tokens at 2000 tokens/s
}

TEST(AdmissionTest, TheBoundOnTokensAdmitsAJobLargerThanItselfOnlyWhenNothingWaits) {
  const AdmissionLimits limits = {.max_queued_tokens = 1000};
  EXPECT_TRUE(AdmitJob(Board({Ready(900)}), G(0), kJob, 0, 0, limits).status.ok());
  const AdmissionVerdict refused = AdmitJob(Board({Ready(901)}), G(0), kJob, 0, 0, limits);
  EXPECT_EQ(refused.status.code(), Code::kUnavailable);
  EXPECT_GT(refused.retry_after_us, 0);
  EXPECT_TRUE(AdmitJob(Board({Ready(0)}), G(0), {.tokens = 5000}, 0, 0, limits).status.ok());
  EXPECT_FALSE(AdmitJob(Board({Ready(1)}), G(0), {.tokens = 5000}, 0, 0, limits).status.ok());
}

TEST(AdmissionTest, AJobWhoseWaitPassesItsDeadlineIsRefusedAtOnce) {
  const BoardSnapshot board = Board({Ready(5000)});  // 5 s
  EXPECT_EQ(ExpectedWaitUs(board.groups[0]), 5'000'000);
  EXPECT_TRUE(AdmitJob(board, G(0), kJob, 1'000'000, 6'000'000, {}).status.ok());
  const AdmissionVerdict refused = AdmitJob(board, G(0), kJob, 1'000'001, 6'000'000, {});
  EXPECT_EQ(refused.status.code(), Code::kUnavailable);
  EXPECT_TRUE(refused.refused_by_deadline);
  EXPECT_EQ(refused.retry_after_us, 1);
  // Nothing is known of the rate: no reason to refuse.
  EXPECT_TRUE(AdmitJob(Board({Ready(5000, 0)}), G(0), kJob, 0, 1, {}).status.ok());
}

// ---- load board ----

TEST(LoadBoardTest, ReadersSumOverTheRowsAndAZeroedRowIsGone) {
  Arena arena = Arena::InMemory(SmallConfig());
  const ProcessId a = AddProcess(arena, ProcessRole::kApiServer, 0);
  const ProcessId b = AddProcess(arena, ProcessRole::kApiServer, 1);
  LoadBoard board = arena.board();
  board.StartGroup(kGroup1);
  board.Add(a, kGroup1, 100);
  board.Add(a, kGroup1, 50);
  board.Add(b, kGroup1, 7);
  board.Subtract(a, kGroup1, 50);
  EXPECT_EQ(board.Read(kGroup1).outstanding_tokens, 107);
  EXPECT_EQ(board.Read(kGroup1).outstanding_jobs, 2);
  EXPECT_EQ(board.Read(kGroup0).outstanding_jobs, 0);
  const BoardSnapshot snapshot = board.Snapshot();
  EXPECT_EQ(snapshot.group_count, 2u);
  EXPECT_EQ(snapshot.groups[0].state, GroupState::kAbsent);
  EXPECT_EQ(snapshot.groups[1].outstanding_tokens, 107);
  board.ZeroRow(a);
  EXPECT_EQ(board.Read(kGroup1).outstanding_tokens, 7);
}

TEST(LoadBoardTest, ManyThreadsOfOneServerLeaveNoDrift) {
  Arena arena = Arena::InMemory(SmallConfig());
  const ProcessId id = AddProcess(arena, ProcessRole::kApiServer, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 2000; ++n) {
        OutstandingLoad load(arena.board(), id, kGroup0, n);
        OutstandingLoad moved = std::move(load);
        if (n % 2 == 0) moved = OutstandingLoad(arena.board(), id, kGroup1, 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const GroupId group : {kGroup0, kGroup1}) {
    EXPECT_EQ(arena.board().Read(group).outstanding_tokens, 0);
    EXPECT_EQ(arena.board().Read(group).outstanding_jobs, 0);
  }
}

TEST(LoadBoardTest, ARestartForgetsTheRateAndKeepsTheTotals) {
  Arena arena = Arena::InMemory(SmallConfig());
  LoadBoard board = arena.board();
  board.StartGroup(kGroup0);
  EXPECT_EQ(board.Read(kGroup0).rate.tokens_per_second, 0);
  board.RecordBatch(kGroup0, 2, 1000, 1'000'000);
  board.RecordBatch(kGroup0, 3, 0, 0);  // jobs that took no pass
  board.SetRate(kGroup0, {1000, 500});
  board.GroupReady(kGroup0, static_cast<ProcessId>(5), 777);
  const GroupLoad ready = board.Read(kGroup0);
  EXPECT_EQ(ready.rate.tokens_per_second, 1000);
  EXPECT_EQ(ready.rate.tokens_a_pass, 500);
  EXPECT_EQ(ready.state, GroupState::kReady);
  EXPECT_EQ(ready.worker_process, static_cast<ProcessId>(5));
  EXPECT_EQ(ready.max_model_len, 777u);
  EXPECT_EQ(ready.total_jobs, 5u);
  EXPECT_EQ(ready.total_tokens, 1000u);
  EXPECT_EQ(ready.total_batches, 1u);
  EXPECT_EQ(ready.total_busy_us, 1'000'000u);
  board.StartGroup(kGroup0);
  const GroupLoad again = board.Read(kGroup0);
  EXPECT_EQ(again.state, GroupState::kLoading);
  EXPECT_EQ(again.incarnation, 2u);
  EXPECT_EQ(again.rate.tokens_per_second, 0);
  EXPECT_EQ(again.rate.tokens_a_pass, 0);
  EXPECT_EQ(again.total_jobs, 5u) << "totals survive, as counters must";
}

}  // namespace
}  // namespace sysone
