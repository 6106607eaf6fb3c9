// What goes wrong in the fake NCCL of this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tests/worker/comm/fake_nccl/nccl.h"

namespace sysone {

struct NcclFaults {
  bool never_joins = false;               // the communicator's beginning stays in progress
  ncclResult_t joins_with = ncclSuccess;  // what becomes of it
  int64_t bad_call = -1;                  // the sum of this number, from 0, is refused by the call
  int64_t bad_sum = -1;                   // this one is begun, and an error shows later
  int64_t endless_sum = -1;               // this one never comes to an end
  // This one ends only when each other rank has polled for errors so often since it began to wait.
  int64_t slow_sum = -1;
  uint32_t slow_polls = 3;
  bool abort_hangs = false;  // ncclCommAbort stops the sums, but does not return
  // Called in front of sum number `until`, by the stream: what the process is to do then.
  int64_t until = -1;
  void (*at_until)() = nullptr;
};

// Before the first communicator.
void SetNcclFaults(const NcclFaults& faults);

}  // namespace sysone
