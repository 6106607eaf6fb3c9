// sysone-worker: a worker group's process, or one of them. Started by `sysone serve`, directly or through mpirun, with its own
// options and the internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/child_options.h"
#include "base/exit_codes.h"
#include "base/launch_place.h"
#include "base/log.h"
#include "shm_arena/heartbeat.h"
#include "worker/worker.h"

int main(int argc, char** argv) {
  auto start = sysone::ParseChildOptions("sysone-worker", argc, argv, /*inherits_socket=*/false);
  if (const int* const exit_status = std::get_if<int>(&start)) return *exit_status;
  const sysone::ServeOptions& options = std::get<sysone::ServeOptions>(start);
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
