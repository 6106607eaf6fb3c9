// sysone-api-server: one HTTP front end of an instance. Started by `sysone serve` with its own options and the internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "api_server/api_server.h"
#include "base/log.h"
#include "base/serve_options.h"
#include "shm_arena/heartbeat.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto parsed = sysone::ParseServeOptions("sysone-api-server", args);
  if (!parsed.ok()) {
    fprintf(stderr, "sysone-api-server: %s\n", parsed.status().message().c_str());
    return 2;
  }
  if (!parsed->text.empty()) {
    fputs(parsed->text.c_str(), stdout);
    return 0;
  }
  const sysone::ServeOptions& options = parsed->options;
  if (options.role_index < 0 || options.listen_fd < 0 || options.run_dir.empty() ||
      options.model_path.empty()) {
    fputs(
        "sysone-api-server: is started by `sysone serve`, which tells it its instance and model\n",
        stderr);
    return 2;
  }
  sysone::InitLog("api-server-" + std::to_string(options.role_index), sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunApiServer(options);
  if (status.ok()) return 0;
  SYSONE_ERROR("%s", status.message().c_str());
  return 1;
}
