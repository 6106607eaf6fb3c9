// Small kernels that emulation_test.cc runs: right ones, and the same with a fault.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace sysone {

// out[block] = sum of in[block * 64 … + 64), by warps and then through shared memory.
void LaunchBlockSums(const float* in, int blocks, float* out, cudaStream_t stream);

}  // namespace sysone
