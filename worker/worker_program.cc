// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_program.h"

#include <cstdio>
#include <string>
#include <string_view>

#include "base/child_options.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "shm_arena/heartbeat.h"
#include "worker/worker.h"

namespace sysone {

int WorkerProgram(const char* program, int argc, char** argv,
                  const std::function<const char*(const char*)>& variable, const Devices& devices) {
  if (argc == 2 && std::string_view(argv[1]) == "--print-kernels") {
    fputs(devices.describe_kernels().c_str(), stdout);
    return kExitOk;
  }
  auto start = ParseChildOptions(program, argc, argv, /*inherits_socket=*/false);
  if (const int* const exit_status = std::get_if<int>(&start)) return *exit_status;
  const ServeOptions& options = std::get<ServeOptions>(start);
  const auto place = ResolveLaunchPlace(variable);
  if (!place.ok()) {
    fprintf(stderr, "%s: %s\n", program, place.status().message().c_str());
    return kExitUsage;
  }
  const std::string name = "worker-" + std::to_string(options.role_index);
  InitLog(options.tensor_parallel_size == 1 || place->rank == 0
              ? name
              : name + "." + std::to_string(place->rank),
          LogLevelOf(options));
  BlockStopSignals();
  const Status status = RunWorker(options, *place, devices);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return ExitStatusOf(status);
}

}  // namespace sysone
