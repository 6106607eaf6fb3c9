// sysone-stand-in: the places of worker groups that run on other hosts. Started by `sysone serve` with its own options and the
// internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include "base/child_options.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "shm_arena/heartbeat.h"
#include "worker/stand_in_hub.h"

int main(int argc, char** argv) {
  auto start = sysone::ParseChildOptions("sysone-stand-in", argc, argv, /*inherits_socket=*/true);
  if (const int* const exit_status = std::get_if<int>(&start)) return *exit_status;
  const sysone::ServeOptions& options = std::get<sysone::ServeOptions>(start);
  sysone::InitLog("stand-in", sysone::LogLevelOf(options));
  sysone::BlockStopSignals();
  const sysone::Status status = sysone::RunStandIns(options);
  if (!status.ok()) SYSONE_ERROR("%s", status.message().c_str());
  return sysone::ExitStatusOf(status);
}
