// sysone-api-server: one HTTP front end of an instance. Started by `sysone serve` with its own options and the internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "api_server/api_server.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/heartbeat.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto parsed = sysone::ParseServeOptions("sysone-api-server", args);
  if (!parsed.ok()) {
    fprintf(stderr, "sysone-api-server: %s\n", parsed.status().message().c_str());
    return sysone::kExitUsage;
  }
  if (!parsed->text.empty()) {
    fputs(parsed->text.c_str(), stdout);
    return sysone::kExitOk;
  }
  sysone::ServeOptions options = parsed->options;
  sysone::UseApiKeyFromEnvironment(options, {getenv("SYSONE_API_KEY"), getenv("VLLM_API_KEY")});
  if (options.role_index < 0 || options.listen_fd < 0 || options.run_dir.empty() ||
      options.model_path.empty()) {
    fputs(
        "sysone-api-server: is started by `sysone serve`, which tells it its instance and model\n",
        stderr);
    return sysone::kExitUsage;
  }
  sysone::InitLog("api-server-" + std::to_string(options.role_index), sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunApiServer(options);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
