// sysone-stand-in: the places of worker groups that run on other hosts. Started by `sysone serve` with its own options and the
// internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/heartbeat.h"
#include "worker/stand_in_hub.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto parsed = sysone::ParseServeOptions("sysone-stand-in", args);
  if (!parsed.ok()) {
    fprintf(stderr, "sysone-stand-in: %s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  if (!parsed->text.empty()) {
    fputs(parsed->text.c_str(), stdout);
    return sysone::kExitOk;
  }
  const sysone::ServeOptions& options = parsed->options;
  if (options.listen_fd < 0 || options.run_dir.empty() || options.model_path.empty()) {
    fputs("sysone-stand-in: is started by `sysone serve`, which tells it its instance and model\n",
          stderr);
    return sysone::kExitUsage;
  }
  sysone::InitLog("stand-in", sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunStandIns(options);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
