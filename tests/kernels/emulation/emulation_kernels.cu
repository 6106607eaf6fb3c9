// See emulation_kernels.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;

__global__ void BlockSums(const float* in, float* out) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  float* sums = reinterpret_cast<float*>(shared_memory);
  float sum = in[blockIdx.x * 64 + threadIdx.x];
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bits);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sums[0] + sums[1];
}

}  // namespace

void LaunchBlockSums(const float* in, int blocks, float* out, cudaStream_t stream) {
  Launch({static_cast<unsigned>(blocks), 64, 2 * sizeof(float)}, stream, BlockSums, in, out);
}

}  // namespace sysone
