// sysone-worker: a worker group's process, or one of them. Started by `sysone serve`, directly or through mpirun, with its own
// options and the internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/launch_place.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/heartbeat.h"
#include "worker/worker.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto parsed = sysone::ParseServeOptions("sysone-worker", args);
  if (!parsed.ok()) {
    fprintf(stderr, "sysone-worker: %s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  if (!parsed->text.empty()) {
    fputs(parsed->text.c_str(), stdout);
    return sysone::kExitOk;
  }
  const sysone::ServeOptions& options = parsed->options;
  if (options.role_index < 0 || options.run_dir.empty() || options.model_path.empty()) {
    fputs("sysone-worker: is started by `sysone serve`, which tells it its instance and model\n",
          stderr);
    return sysone::kExitUsage;
  }
  const auto place = sysone::ResolveLaunchPlace([](const char* name) { return getenv(name); });
  if (!place.ok()) {
    fprintf(stderr, "sysone-worker: %s\n", place.status().message().c_str());
    return sysone::kExitUsage;
  }
  const std::string name = "worker-" + std::to_string(options.role_index);
  sysone::InitLog(options.tensor_parallel_size == 1 || place->rank == 0
                      ? name
                      : name + "." + std::to_string(place->rank),
                  sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunWorker(options, *place);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
