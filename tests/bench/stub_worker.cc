// Stands in for sysone-worker where the front end alone is measured: the real engine over the real arena, but a pass that
// computes nothing. A file "<name of the program>.us" beside it may hold one number a group, the microseconds that a token
// takes (slept, not spent, as if the pass ran elsewhere); without it a pass takes no time.
// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>
#include <time.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/group_bell.h"
#include "shm_arena/heartbeat.h"
#include "shm_arena/router_watch.h"
#include "worker/engine.h"

namespace sysone {
namespace {

constexpr int64_t kAttachWaitUs = 10'000'000;
constexpr uint32_t kMaxModelLen = 8192;
constexpr int32_t kKvBlocks = 16 * kMaxModelLen / KvCache::kBlockRows;

double UsPerToken(const std::string& program, int group) {
  std::ifstream file(program + ".us");
  double us = 0;
  for (int g = 0; g <= group && file >> us; ++g) {
  }
  return us;
}

void SleepUntil(int64_t until_us) {
  const timespec until = {static_cast<time_t>(until_us / 1'000'000),
                          static_cast<long>(until_us % 1'000'000) * 1'000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

// A label's logit depends on its token alone, so equal requests get equal answers.
class StubModel final : public PassModel {
 public:
  explicit StubModel(double us_per_token) : us_per_token_(us_per_token) {}
  int32_t hidden() const override { return 1; }
  void Run(const Pass& pass, std::span<float>, std::span<float> logits,
           std::span<HeadSummary> heads) override {
    const double us = us_per_token_ * pass.rows();
    if (us > 0) SleepUntil(MonotonicUs() + static_cast<int64_t>(us));
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>(pass.label_ids()[i] % 17) * 0.25F;
    for (HeadSummary& head : heads) head = HeadSummary{};
  }

 private:
  const double us_per_token_;
};

Status Run(const ServeOptions& options, double us_per_token) {
  const GroupId group{static_cast<uint32_t>(options.role_index)};
  SYSONE_ASSIGN_OR_RETURN(Arena arena, Arena::Attach(options.instance_name, kAttachWaitUs));
  SYSONE_RETURN_IF_ERROR(arena.Register(ProcessRole::kWorker, Index(group)));
  arena.WakeThrough(options.run_dir);
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  Heartbeat heartbeat(arena);
  std::unique_ptr<DoorbellListener> socket;
  if (options.doorbell == "zeromq") {
    SYSONE_ASSIGN_OR_RETURN(socket, DoorbellListener::Bind(options.run_dir, group));
  }
  const auto doorbell = MakeGroupListener(arena, group, std::move(socket));
  EngineOptions engine_options;
  engine_options.group = group;
  engine_options.vocabulary = INT32_MAX;
  engine_options.limits = {options.max_num_batched_tokens, options.max_num_batched_tokens,
                           options.max_num_seqs};
  engine_options.kv_blocks = kKvBlocks;
  engine_options.prefix_caching = false;  // every request counts as a new one
  StubModel model(us_per_token);
  Engine engine(arena, *doorbell, model, engine_options);
  arena.board().GroupReady(group, arena.self(), kMaxModelLen);
  arena.lease().SetPhase(ProcessPhase::kReady);
  engine.Run(heartbeat.stop());
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return {};
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  const std::string program = argv[0];
  const auto parsed =
      sysone::ParseServeOptions(program, std::vector<std::string>(argv + 1, argv + argc));
  if (!parsed.ok()) {
    fprintf(stderr, "%s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  sysone::InitLog("stub-worker", sysone::LogLevel::kWarning);
  sysone::BlockStopSignals();
  prctl(PR_SET_TIMERSLACK, 1UL);  // else every sleep takes 50 µs more than it was asked to
  const sysone::Status status =
      sysone::Run(parsed->options, sysone::UsPerToken(program, parsed->options.role_index));
  if (status.ok()) return sysone::kExitOk;
  SYSONE_ERROR("%s", status.message().c_str());
  return sysone::kExitFailure;
}
