// sysone-worker: a worker group's process, or one of them. Started by `sysone serve`, directly or through mpirun, with its own
// options and the internal ones behind.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "worker/worker_program.h"

int main(int argc, char** argv) {
  return sysone::WorkerProgram(
      "sysone-worker", argc, argv, [](const char* name) { return getenv(name); },
      sysone::CpuDevices());
}
