// sysone-worker-cuda: what sysone-worker is, on GPUs.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "worker/worker_program.h"

int main(int argc, char** argv) {
  return sysone::WorkerProgram(
      "sysone-worker-cuda", argc, argv, [](const char* name) { return getenv(name); },
      sysone::CudaDevices());
}
