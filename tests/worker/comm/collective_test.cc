// Sums, messages and agreement between real processes, over shared memory and over MPI, on 1 to 4 ranks; and what
// happens when the ranks come apart. collective_ranks.cc is what they run.
// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/collective.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "tests/worker/comm/mpirun.h"

namespace sysone {
namespace {

RanksRun RunRanks(int ranks, const std::string& over, const std::string& what) {
  return Mpirun(
      Format("-np %d " SYSONE_COLLECTIVE_RANKS " %s %s", ranks, over.c_str(), what.c_str()));
}

// "sums 0123…", the hash over all of them.
std::string SumsOf(const RanksRun& run) {
  const size_t at = run.output.find("sums ");
  return at == std::string::npos ? "" : run.output.substr(at, 21);
}

bool Says(const RanksRun& run, const std::string& text) {
  return run.output.find(text) != std::string::npos;
}

class RanksOver : public ::testing::TestWithParam<std::string> {};

TEST_P(RanksOver, SumTheSameBitsInEveryRunAndGetEveryMessageWhole) {
  for (const int ranks : {1, 2, 4}) {
    const RanksRun first = RunRanks(ranks, GetParam(), "check");
    ASSERT_EQ(first.exit_status, 0) << first.output;
    ASSERT_TRUE(Says(first, "all well")) << first.output;
    EXPECT_TRUE(Says(first, GetParam() == "shared" ? "over shared memory" : "over MPI"))
        << first.output;
    EXPECT_EQ(SumsOf(first).size(), 21u);
    if (ranks == 2) {
      EXPECT_EQ(SumsOf(first), SumsOf(RunRanks(ranks, GetParam(), "check")));
    }
  }
}

TEST_P(RanksOver, ADisagreementEndsTheWholeGroupAndNamesTheRank) {
  const RanksRun run = RunRanks(3, GetParam(), "differ");
  EXPECT_NE(run.exit_status, 0);
  EXPECT_TRUE(Says(run, "rank 1 and rank 0 differ in the colour")) << run.output;
}

TEST_P(RanksOver, ThatComeApartEndTheGroupAndSayWhereTheyAre) {
  const RanksRun run = RunRanks(2, GetParam(), "apart");
  EXPECT_NE(run.exit_status, 0);
  EXPECT_TRUE(Says(run, "come apart")) << run.output;
  EXPECT_TRUE(Says(run, "a sum of floats (9)")) << run.output;
}

TEST_P(RanksOver, NameAStuckRankAndWhatWasLastHeardOfIt) {
  const RanksRun run = RunRanks(3, GetParam(), "stuck");
  EXPECT_NE(run.exit_status, 0);
  EXPECT_TRUE(Says(run, "rank 1 is stuck")) << run.output;
  EXPECT_FALSE(Says(run, "rank 0 is stuck") || Says(run, "rank 2 is stuck")) << run.output;
  EXPECT_TRUE(Says(run, "comparing notes")) << run.output;
}

INSTANTIATE_TEST_SUITE_P(All, RanksOver, ::testing::Values("shared", "mpi"),
                         [](const auto& setting) { return setting.param; });

TEST(SharedMemoryRanks, HaveTheSumsOfMpiRanks) {
  EXPECT_EQ(SumsOf(RunRanks(3, "shared", "check")), SumsOf(RunRanks(3, "mpi", "check")));
}

TEST(SoloCollective, LeavesValuesAndMessagesAsTheyAre) {
  const auto solo = MakeSoloCollective();
  EXPECT_EQ(solo->rank(), 0);
  EXPECT_EQ(solo->size(), 1);
  std::vector<float> values{1, -2};
  solo->AllReduceSum(values);
  EXPECT_EQ(values, (std::vector<float>{1, -2}));
  std::vector<std::byte> message{std::byte{3}};
  solo->Broadcast(message);
  EXPECT_EQ(message.size(), 1u);
  uint64_t all = 0;
  solo->AllGather(5, {&all, 1});
  EXPECT_EQ(all, 5u);
  CheckAgreement(*solo, 5, "a number");
}

}  // namespace
}  // namespace sysone
