// What the vector units of this machine do at best, in loops that touch registers alone: what benches print shares of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sysone {

struct MachinePeak {
  std::string instruction;  // what the loop is made of
  double
      operations_per_ns;  // all threads together, multiply and add counted as two: GFLOP/s or GOP/s
};

// float32 multiply-adds, and products of small integers summed in 32 bits. Each takes some 10 ms on `threads` threads at once
// (two virtual cores may be one real one); measured anew at every call, because shared machines change speed.
MachinePeak FloatPeak(int threads);
MachinePeak IntegerPeak(int threads);

}  // namespace sysone
