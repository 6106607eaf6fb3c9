// The collective over devices, between real processes over the fake NCCL: the sums of the host's collective, and what becomes of a
// peer that is dead, slow or failing. nccl_ranks.cc is what they run.
// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/nccl_collective.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/worker/comm/mpirun.h"

namespace sysone {
namespace {

struct DevicesRun : RanksRun {
  double seconds = 0;
  bool Says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

DevicesRun RunRanks(int ranks, const std::string& over, const std::string& what) {
  const int64_t begin_us = MonotonicUs();
  DevicesRun run{
      Mpirun(Format("-np %d " SYSONE_NCCL_RANKS " %s %s", ranks, over.c_str(), what.c_str()))};
  run.seconds = static_cast<double>(MonotonicUs() - begin_us) * 1e-6;
  return run;
}

// A group that cannot go on ends by itself, long before a test's patience is over, and with a reason.
void ExpectEnd(const DevicesRun& run, const std::string& reason) {
  EXPECT_NE(run.exit_status, 0) << run.output;
  EXPECT_LT(run.seconds, 30) << run.output;
  EXPECT_FALSE(run.Says("all well")) << run.output;
  EXPECT_TRUE(run.Says(reason)) << run.output;
}

class Devices : public ::testing::TestWithParam<int> {};

TEST_P(Devices, SumWholeNumbersToTheBitsOfTheHost) {
  for (const char* over : {"shared", "mpi"}) {
    const DevicesRun run = RunRanks(GetParam(), over, "check");
    EXPECT_EQ(run.exit_status, 0) << run.output;
    EXPECT_TRUE(run.Says("their devices by NCCL 2.28.9: all well")) << run.output;
  }
}

TEST_P(Devices, AddAnyNumbersInOneOrderUnlessTheyAreMoreThanTwo) {
  const DevicesRun run = RunRanks(GetParam(), "shared", "floats");
  EXPECT_EQ(run.exit_status, 0) << run.output;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Devices, ::testing::Values(1, 2, 4, 8),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST(NcclCollective, SaysWhichDeviceEachRankHas) {
  const DevicesRun run = RunRanks(2, "shared", "check");
  EXPECT_TRUE(
      run.Says("rank 0 of 2: Fake device (PCI 0000:00:00.0) on here, alone; 1 machine, "
               "NCCL 2.28.9"))
      << run.output;
  EXPECT_TRUE(run.Says("rank 1 of 2: Fake device (PCI 0000:01:00.0)")) << run.output;
}

TEST(NcclCollective, RefusesTwoRanksOnOneDevice) {
  const DevicesRun run = RunRanks(3, "shared", "twins");
  ExpectEnd(run, "ranks 0 and 1 are on one device");
  EXPECT_TRUE(run.Says("PCI 0000:aa:00.0")) << run.output;
}

TEST(NcclCollective, TakesDevicesOfOneNumberOnTwoMachines) {
  const DevicesRun run = RunRanks(2, "mpi", "strangers");
  EXPECT_EQ(run.exit_status, 0) << run.output;
  EXPECT_TRUE(run.Says("2 machines")) << run.output;
}

TEST(NcclCollective, WaitsForARankThatIsLate) {
  const DevicesRun run = RunRanks(3, "shared", "slow");
  EXPECT_EQ(run.exit_status, 0) << run.output;
  EXPECT_TRUE(run.Says("all well")) << run.output;
}

TEST(NcclCollective, EndsWhenARankDoesNotJoinInTime) {
  ExpectEnd(
      RunRanks(2, "shared", "never-joins"),
      "step 0, connecting the devices, of (2): ncclCommInitRankConfig is not done after 0.3 s");
}

TEST(NcclCollective, EndsWhenJoiningFailsAndSaysWhatNcclSays) {
  ExpectEnd(RunRanks(2, "shared", "joins-badly"),
            "rank 1: step 0, connecting the devices, of (2): ncclCommInitRankConfig: an error of "
            "the fake (the last error's text)");
}

TEST(NcclCollective, EndsWhenACallIsRefused) {
  ExpectEnd(RunRanks(2, "shared", "bad-call"),
            "rank 1: step 4, a sum of floats (5000): ncclAllReduce: an error of the fake");
}

TEST(NcclCollective, EndsWhenAnErrorShowsWhileTheResultsAreWaitedFor) {
  ExpectEnd(RunRanks(2, "shared", "bad-sum"),
            "rank 1: step 4, a sum of floats (5000): NCCL: remote process exited");
}

TEST(NcclCollective, EndsWhenASumNeverComes) {
  ExpectEnd(RunRanks(3, "shared", "endless-sum"),
            "step 4, a sum of floats (5000): not finished after 0.3 s, and no error is reported");
}

TEST(NcclCollective, EndsEvenWhenAbortingTheCommunicatorDoesNot) {
  ExpectEnd(RunRanks(2, "shared", "abort-hangs"), "not finished after 0.3 s");
}

TEST(NcclCollective, EndsWithARankThatIsKilled) {
  const DevicesRun run = RunRanks(3, "shared", "killed");
  EXPECT_EQ(run.exit_status, 128 + 9) << "mpirun's, of a rank that a signal ended: " << run.output;
  EXPECT_LT(run.seconds, 30) << run.output;
  EXPECT_FALSE(run.Says("all well")) << run.output;
}

TEST(NcclCollective, EndsWhenARankIsStopped) {
  ExpectEnd(RunRanks(3, "mpi", "stopped"), "a rank is stuck or gone");
}

}  // namespace
}  // namespace sysone
