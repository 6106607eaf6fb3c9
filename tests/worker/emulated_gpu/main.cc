// sysone-worker-cuda on emulated devices and over the fake NCCL, so that a real router starts it and real clients are answered. Two
// devices, like a Hopper in all but size.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "tests/kernels/emulation/emulation.h"
#include "worker/worker_program.h"

int main(int argc, char** argv) {
  sysone::emulation::SetDevices(2, size_t{2} << 30, 90);
  return sysone::WorkerProgram(
      "sysone-worker-cuda", argc, argv, [](const char* name) { return getenv(name); },
      sysone::CudaDevices());
}
