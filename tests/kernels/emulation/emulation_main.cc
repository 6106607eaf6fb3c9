// The main function of tests that run kernels: SYSONE_EMULATION_ORDER says in which order their threads run (forward, backward,
// in-turn, shuffled:SEED), for tests that do not set one themselves.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/kernels/emulation/emulation.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* order = std::getenv("SYSONE_EMULATION_ORDER")) {
    sysone::emulation::SetThreadOrder(sysone::emulation::OrderNamed(order));
    std::printf("threads of kernels run in the order %s\n", order);
  }
  return RUN_ALL_TESTS();
}
