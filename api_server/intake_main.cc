// sysone-intake: takes the jobs of another host's router for a worker group of this one. Started by `sysone serve` with its own options and the
// internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "api_server/intake.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/heartbeat.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto parsed = sysone::ParseServeOptions("sysone-intake", args);
  if (!parsed.ok()) {
    fprintf(stderr, "sysone-intake: %s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  if (!parsed->text.empty()) {
    fputs(parsed->text.c_str(), stdout);
    return sysone::kExitOk;
  }
  const sysone::ServeOptions& options = parsed->options;
  if (options.role_index < 0 || options.run_dir.empty() || options.model_path.empty()) {
    fputs("sysone-intake: is started by `sysone serve`, which tells it its instance and model\n",
          stderr);
    return sysone::kExitUsage;
  }
  sysone::InitLog("intake-" + std::to_string(options.role_index), sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunIntake(options);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
