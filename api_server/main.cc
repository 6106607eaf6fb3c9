// sysone-api-server: one HTTP front end of an instance. Started by `sysone serve` with its own options and the internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>

#include "api_server/api_server.h"
#include "base/child_options.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "shm_arena/heartbeat.h"

int main(int argc, char** argv) {
  auto start = sysone::ParseChildOptions("sysone-api-server", argc, argv, /*inherits_socket=*/true);
  if (const int* const exit_status = std::get_if<int>(&start)) return *exit_status;
  sysone::ServeOptions& options = std::get<sysone::ServeOptions>(start);
  sysone::UseApiKeyFromEnvironment(options, {getenv("SYSONE_API_KEY"), getenv("VLLM_API_KEY")});
  sysone::InitLog("api-server-" + std::to_string(options.role_index), sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunApiServer(options);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
