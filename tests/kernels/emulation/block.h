// Runs the blocks of a kernel: each thread is a fiber that goes on until it waits for others, and the order of threads says who
// is next. For the headers that kernels include; tests use emulation.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>

#include "tests/kernels/emulation/vector_types.h"

namespace sysone::emulation {

using Place = std::source_location;

// As Hopper: what one block may have at most, and what it may have without asking.
inline constexpr size_t kMostSharedBytes = 227 * 1024;
inline constexpr size_t kUnaskedSharedBytes = 48 * 1024;

struct KernelCall {
  dim3 grid, block;
  size_t shared_bytes = 0;
  std::function<void()> thread;  // what every thread does
};

// All blocks, in the calling host thread. A fault of the kernel becomes the device's (ReportFault).
void RunGrid(const KernelCall& call);

// --- Of a kernel's thread. ---------------------------------------------------------------------------------------------

// Waits for all threads of the block, which must come to the same line.
void WaitForBlock(const Place& place);

// Waits until all lanes of `mask` have come to the same line with the same mask; then `all` sees what each of them brought, by
// lane, and fills in what they receive.
using AllLanes = void (*)(void* const* brought, uint32_t mask);
void WaitForLanes(const char* what, uint32_t mask, void* brought, AllLanes all, const Place& place);

// Ends the kernel with a fault.
[[noreturn]] void FailKernel(const std::string& fault, const Place& place);

// Whether [address, address + bytes) is shared memory that the block asked for.
bool InSharedMemory(const void* address, size_t bytes);

}  // namespace sysone::emulation
