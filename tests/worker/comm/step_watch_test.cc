// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/step_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace sysone {
namespace {

// A watch that looks all the time, and hands over what it ends with.
struct Watched {
  explicit Watched(int64_t stuck_after_us)
      : watch({stuck_after_us, 100,
               [this] {
                 ++looks;
                 return fault ? std::string("a fault") : "";
               },
               [this](const std::string& why) { ended.set_value(why); }}) {}
  void AwaitLooks(int more) const {
    for (const int until = looks + more; looks < until;) std::this_thread::yield();
  }

  std::atomic<bool> fault{false};
  std::atomic<int> looks{0};
  std::promise<std::string> ended;
  std::future<std::string> cause = ended.get_future();
  StepWatch watch;
};

constexpr int64_t kPatientUs = 3'600'000'000;

bool Ended(const Watched& watched) {
  return watched.cause.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(StepWatch, EndsAStepThatTakesTooLongAndSaysWhichAndHowLong) {
  Watched watched(50'000);
  watched.watch.Begin(17, "a pass", 64);
  const std::string cause = watched.cause.get();
  EXPECT_NE(cause.find("not finished after 0."), std::string::npos) << cause;
  EXPECT_EQ(watched.watch.Step(), "step 17, a pass (64)");
}

TEST(StepWatch, EndsAStepWithAFaultAtOnce) {
  Watched watched(kPatientUs);
  watched.watch.Begin(1, "a pass", 2);
  watched.AwaitLooks(3);
  EXPECT_FALSE(Ended(watched));
  watched.fault = true;
  EXPECT_EQ(watched.cause.get(), "a fault");
}

TEST(StepWatch, LeavesStepsAloneThatEndInTime) {
  Watched watched(kPatientUs);
  for (uint64_t step = 1; step < 20; ++step) {
    watched.watch.Begin(step, "a pass", 1);
    watched.AwaitLooks(1);
    watched.watch.End();
  }
  EXPECT_FALSE(Ended(watched));
}

TEST(StepWatch, DoesNotLookBetweenSteps) {
  Watched watched(1);
  watched.fault = true;
  // What comes first is not yet watched; a step that has begun and ended is no more.
  EXPECT_EQ(watched.watch.Step(), "step 0, nothing yet (0)");
  Watched other(kPatientUs);
  other.watch.Begin(1, "a pass", 1);
  other.AwaitLooks(50);  // many times as long as the first watch takes to look
  EXPECT_FALSE(Ended(watched));
  EXPECT_EQ(watched.looks, 0);
}

}  // namespace
}  // namespace sysone
