// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/roll_call.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "tests/model/temp_folder.h"
#include "tests/worker/comm/mpirun.h"

namespace sysone {
namespace {

constexpr int64_t kLongUs = 600'000'000;

TEST(RollCall, MissesThoseWhoHaveNotComeAndThoseWhoHaveGone) {
  const TempFolder folder;
  const RollCall zero(folder.path(), "group", 0, 4, kLongUs);
  EXPECT_EQ(zero.Missing(), "1, 2, 3");
  std::optional<RollCall> two;
  two.emplace(folder.path(), "group", 2, 4, kLongUs);
  const RollCall another(folder.path(), "other", 3, 4, kLongUs);
  EXPECT_EQ(zero.Missing(), "1, 3");
  EXPECT_EQ(two->Missing(), "1, 3");
  two.reset();
  EXPECT_EQ(zero.Missing(), "1, 2, 3");
}

TEST(RollCall, LeavesNoFileBehind) {
  const TempFolder folder;
  { const RollCall one(folder.path(), "group", 1, 2, kLongUs); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(RollCall, ARankThatNeverComesIsNamedAndTheGroupEnds) {
  const TempFolder folder;
  const std::string rank = SYSONE_COLLECTIVE_RANKS " shared call " + folder.path() + " 5";
  // In rank 1's place is a program that knows nothing of MPI.
  const RanksRun run = Mpirun("-np 1 " + rank + " : -np 1 sleep 50 : -np 1 " + rank);
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_NE(run.output.find("missing is rank 1\n"), std::string::npos) << run.output;
}

TEST(RollCall, PassesUnheardWhenAllCome) {
  const TempFolder folder;
  const RanksRun run =
      Mpirun("-np 2 " SYSONE_COLLECTIVE_RANKS " shared call " + folder.path() + " 50");
  EXPECT_EQ(run.exit_status, 0) << run.output;
  EXPECT_EQ(run.output, "");
}

}  // namespace
}  // namespace sysone
