// Stands in for sysone-api-server and sysone-worker in the tests of the router: it parses the same options, takes its line
// of the process table, and then does what the file "<name of the program>.do" beside it says, one word:
//   ready      becomes ready, ends on SIGTERM (also without a file)
//   crash      ends with status 1 at once          setup     ends with status 3 at once
//   hang       stays in the phase of loading       deaf      ready, but ignores SIGTERM
//   silent     ready, then gives no heartbeat      hold      ready, holding work in the arena: an API server holds a job of
//                                                            group 0, a worker runs every job that it finds
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/arena.h"
#include "shm_arena/router_watch.h"

namespace sysone {
namespace {

// The API server's job lies in the slot until this process ends; nobody waits for its answer.
void HoldAJob(Arena& arena) {
  const auto slot = arena.slots().Claim(arena.self(), 64);
  SYSONE_CHECK(slot.ok(), "no slot");
  PublishOptions publish;
  publish.now_us = MonotonicUs();
  publish.used_bytes = 64;
  SYSONE_CHECK(arena.slots().Publish(*slot, GroupId{0}, publish), "not published");
}

int Run(const ServeOptions& options, const std::string& behaviour, bool is_worker) {
  auto arena = Arena::Attach(options.instance_name, 5'000'000);
  if (!arena.ok()) {
    SYSONE_ERROR("%s", arena.status().message().c_str());
    return kExitFailure;
  }
  const uint32_t index = static_cast<uint32_t>(options.role_index);
  const Status registered =
      arena->Register(is_worker ? ProcessRole::kWorker : ProcessRole::kApiServer, index);
  SYSONE_CHECK(registered.ok(), "%s", registered.message().c_str());
  const RouterWatch watch(*arena, options.instance_name, options.run_dir);

  ProcessLease& lease = arena->lease();
  lease.SetPhase(ProcessPhase::kLoading);
  lease.SetProgress(500);
  if (behaviour != "hang") {
    if (is_worker) arena->board().GroupReady(GroupId{index}, arena->self(), 1024);
    lease.SetPhase(ProcessPhase::kReady);
  }
  if (behaviour == "hold" && !is_worker) HoldAJob(*arena);

  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  for (;;) {
    const timespec tick = {0, 20'000'000};
    if (sigtimedwait(&stop, nullptr, &tick) == SIGTERM && behaviour != "deaf" &&
        behaviour != "silent")
      return kExitOk;
    if (behaviour != "silent") lease.Beat(MonotonicUs());
    if (behaviour != "hold" || !is_worker) continue;
    for (const SlotHandle slot : arena->slots().ReadySlots(GroupId{index}))
      [[maybe_unused]] const bool taken = arena->slots().Take(slot, GroupId{index});
  }
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  const std::string program = argv[0];
  const bool is_worker = program.ends_with("sysone-worker");
  // Before the watch's thread starts, so that it has the mask, too.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, nullptr);

  const auto parsed =
      sysone::ParseServeOptions(program, std::vector<std::string>(argv + 1, argv + argc));
  if (!parsed.ok()) {
    fprintf(stderr, "%s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  sysone::InitLog(is_worker ? "stub-worker" : "stub-api-server", sysone::LogLevel::kInfo);
  std::string behaviour = "ready";
  std::ifstream(program + ".do") >> behaviour;
  if (behaviour == "crash") return sysone::kExitFailure;
  if (behaviour == "setup") return sysone::kExitSetup;
  return sysone::Run(parsed->options, behaviour, is_worker);
}
