// What the parts of the emulated runtime share. Tests use emulation.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "tests/kernels/emulation/emulation.h"

namespace sysone::emulation {

ThreadOrder CurrentOrder();
WorkTime CurrentWorkTime();

// At the beginning of every call: a failure that a test asked for, or the device's fault.
cudaError_t Begin(const char* call);
// At its end: keeps the error for cudaGetLastError, and gives it back.
cudaError_t End(cudaError_t error);

// Tells the observer of launches, if there is one. Returns whether there is: then kernels and products are not run.
bool Observed(const Launched& launched);

// Calls that might touch other work: forbidden while a stream captures, unless that is relaxed. Ends the capture.
cudaError_t ForbiddenWhileCapturing();

// --- Memory. -----------------------------------------------------------------------------------------------------------------
enum class Memory {
  kDevice,
  kPinned,
  kPageable,  // the host's, unknown to CUDA
  kBeyond,    // begins in an allocation and ends outside of it
};
Memory MemoryAt(const void* memory, size_t bytes);
// Looks at what lies before and behind every allocation; a change is the device's fault.
void CheckGuards();

struct DeviceSettings {
  int devices = 1;
  size_t memory_bytes = size_t{8} << 30;  // of each device
  int compute_capability = 90;            // 10 · major + minor
};
const DeviceSettings& Settings();
int CurrentDevice();  // of the calling host thread

}  // namespace sysone::emulation
