// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/watched_rank.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/comm/step_watch.h"

namespace sysone {
namespace {

// How often the watch looks: often enough that the end comes in time, seldom enough to cost nothing.
constexpr int64_t kLookEveryUs = 100'000;

class WatchedRank final : public Collective {
 public:
  WatchedRank(std::unique_ptr<Collective> alone, int64_t stuck_after_us)
      : Collective(0, 1),
        alone_(std::move(alone)),
        watch_({stuck_after_us, std::min(kLookEveryUs, std::max<int64_t>(stuck_after_us / 4, 1)),
                [] { return std::string(); },
                [this](const std::string& cause) { GiveUp(cause); }}) {
    SYSONE_CHECK(alone_->size() == 1, "%d ranks are not alone", alone_->size());
  }

  std::string Describe() const override { return alone_->Describe(); }
  void AllReduceSum(std::span<float> values) override { alone_->AllReduceSum(values); }
  void SumTensor(std::span<float> memory) override { alone_->SumTensor(memory); }
  void Broadcast(std::vector<std::byte>& message) override { alone_->Broadcast(message); }
  void AllGather(uint64_t own, std::span<uint64_t> all) override { alone_->AllGather(own, all); }
  void BeginStep(uint64_t number, const char* what, int64_t amount) override {
    watch_.Begin(number, what, amount);
  }
  void EndStep() override { watch_.End(); }
  void Finish() override { alone_->Finish(); }

 private:
  // Nothing is tidied up: what is left of the device belongs to the driver, and destructors would wait for it.
  [[noreturn]] void GiveUp(const std::string& cause) const {
    SYSONE_CHECK(false, "%s: %s", watch_.Step().c_str(), cause.c_str());
    __builtin_unreachable();
  }

  const std::unique_ptr<Collective> alone_;
  StepWatch watch_;  // the last member: its thread uses the others
};

}  // namespace

std::unique_ptr<Collective> WatchRank(std::unique_ptr<Collective> alone, int64_t stuck_after_us) {
  return std::make_unique<WatchedRank>(std::move(alone), stuck_after_us);
}

}  // namespace sysone
