// sysone-intake: takes the jobs of another host's router for a worker group of this one. Started by `sysone serve` with its own options and the
// internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "api_server/intake.h"
#include "base/child_options.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "shm_arena/heartbeat.h"

int main(int argc, char** argv) {
  auto start = sysone::ParseChildOptions("sysone-intake", argc, argv, /*inherits_socket=*/false);
  if (const int* const exit_status = std::get_if<int>(&start)) return *exit_status;
  const sysone::ServeOptions& options = std::get<sysone::ServeOptions>(start);
  sysone::InitLog("intake-" + std::to_string(options.role_index), sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunIntake(options);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
