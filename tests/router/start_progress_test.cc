// SPDX-License-Identifier: Apache-2.0
#include "router/start_progress.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

using Lines = std::vector<std::string>;
using Statuses = std::vector<ChildStatus>;

constexpr ProcessRole kWorker = ProcessRole::kWorker;
constexpr ProcessRole kApi = ProcessRole::kApiServer;

TEST(StartProgress, SaysEveryPhaseOnceAndLoadingInSteps) {
  StartProgress progress;
  Statuses children = {{kWorker, 0, ProcessPhase::kAbsent, 0}, {kApi, 0, ProcessPhase::kAbsent, 0}};
  EXPECT_EQ(progress.Update(children), Lines{});
  children[0].phase = ProcessPhase::kStarting;
  EXPECT_EQ(progress.Update(children), Lines{});
  children[0].phase = ProcessPhase::kLoading;
  children[1].phase = ProcessPhase::kLoading;
  EXPECT_EQ(progress.Update(children),
            (Lines{"worker 0: loading weights, 0 %",
                   "API server 0: loading the tokenizer and the template"}));
  children[0].progress = 199;
  EXPECT_EQ(progress.Update(children), Lines{});
  children[0].progress = 450;
  EXPECT_EQ(progress.Update(children), Lines{"worker 0: loading weights, 45 %"});
  EXPECT_EQ(progress.Update(children), Lines{});
  children[0].phase = ProcessPhase::kReady;
  EXPECT_EQ(progress.Update(children), Lines{"worker 0: ready"});
  children[0] = {kWorker, 0, ProcessPhase::kAbsent, 0};
  EXPECT_EQ(progress.Update(children), Lines{});
  children[0].phase = ProcessPhase::kLoading;
  EXPECT_EQ(progress.Update(children), Lines{"worker 0: loading weights, 0 %"});
}

TEST(StartProgress, AllReadyMeansEveryone) {
  Statuses children = {{kWorker, 0, ProcessPhase::kReady, 0},
                       {kApi, 0, ProcessPhase::kDraining, 0}};
  EXPECT_FALSE(AllReady(children));
  children[1].phase = ProcessPhase::kReady;
  EXPECT_TRUE(AllReady(children));
}

TEST(StartProgress, NamesWhoIsMissingAndInWhichPhase) {
  const Statuses children = {{kWorker, 0, ProcessPhase::kReady, 0},
                             {kWorker, 1, ProcessPhase::kLoading, 405},
                             {kApi, 0, ProcessPhase::kAbsent, 0},
                             {kApi, 1, ProcessPhase::kStarting, 0}};
  EXPECT_EQ(
      MissingText(children),
      "worker 1 (loading weights, 40 %), API server 0 (not registered), API server 1 (starting)");
}

TEST(StartProgress, CountsInWords) {
  EXPECT_EQ(Counted(1, "group"), "1 group");
  EXPECT_EQ(Counted(3, "group"), "3 groups");
}

}  // namespace
}  // namespace sysone
