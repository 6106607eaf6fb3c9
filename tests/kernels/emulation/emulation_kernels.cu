// See emulation_kernels.h.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <ptx.h>

#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFF;
constexpr int kWarps = kSquares / 32;

// Shared memory: the values of each warp [kSquares], then the sums of the warps [kWarps].
template <Fault kFault>
__global__ void SumOfSquaresKernel(const float* in, int count, float* out) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  float* values = reinterpret_cast<float*>(shared_memory);
  float* sums = values + kSquares;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int block = static_cast<int>(blockIdx.x);

  const int end = kFault == Fault::kOneTooMany ? count + 1 : count;
  values[thread] = thread < end ? in[block * kSquares + thread] : 0;
  if (kFault != Fault::kNoWarpBarrier) __syncwarp();
  // Each lane takes its value from the lane on the other side.
  const float value = values[warp * 32 + 31 - lane];
  float sum = value * value;

  if (kFault == Fault::kEarlyExit && thread == 37) return;
  unsigned mask = kAllLanes;
  if (kFault == Fault::kMaskWithoutLastLane) mask = kAllLanes >> 1;
  if (kFault == Fault::kOtherMasks && lane < 16) mask = 0xFFFF;
  for (int bits = 16; bits > 0; bits /= 2) {
    if (kFault == Fault::kOtherCall && lane == 9) {
      sum += static_cast<float>(__ballot_sync(mask, 1));
    } else {
      sum += __shfl_xor_sync(mask, sum, bits);
    }
  }
  if (lane == 0) {
    sums[kFault == Fault::kRace ? 0 : warp] = sum;
    if (kFault == Fault::kWriteBehindShared && warp == 2) sums[kWarps] = sum;
    if (kFault == Fault::kWriteBeforeShared && warp == 2) values[lane - 1] = sum;
  }
  if (kFault == Fault::kTwoBarriers && warp < 2) {
    __syncthreads();
  } else if (kFault != Fault::kNoBarrier && (kFault != Fault::kDivergentBarrier || warp < 3)) {
    __syncthreads();
  }
  if (thread != kSquares / 2) return;
  float total = 0;
  for (int i = 0; i < kWarps; ++i) total += sums[kFault == Fault::kRace ? 0 : i];
  if (kFault == Fault::kReadBehindShared) total += sums[kWarps] * 0;
  out[block] = total;
  const int last = static_cast<int>(gridDim.x) - 1;
  if (kFault == Fault::kWriteBehindOut && block == last) out[block + 1] = total;
  if (kFault == Fault::kWriteBeforeOut && block == 0) out[-1] = total;
}

template <Fault kFault>
void Sum(const float* in, int blocks, int count, float* out, cudaStream_t stream) {
  Launch({static_cast<unsigned>(blocks), kSquares, (kSquares + kWarps) * sizeof(float)}, stream,
         SumOfSquaresKernel<kFault>, in, count, out);
}

__device__ uint32_t Pair(uint16_t lower, uint16_t upper) {
  return static_cast<uint32_t>(lower) | static_cast<uint32_t>(upper) << 16;
}

template <FragmentLoads kLoads>
__global__ void TensorProductKernel(const uint16_t* a, const uint16_t* b, float* d) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  uint16_t* shared_a = reinterpret_cast<uint16_t*>(shared_memory);  // [16, 16]
  uint16_t* shared_b =
      shared_a + 16 * 16;  // [8, 16], or [16, 8]; twice, as four matrices are loaded
  const int lane = static_cast<int>(threadIdx.x), group = lane / 4, pair = lane % 4 * 2;
  for (int i = lane; i < 16 * 16; i += 32) shared_a[i] = a[i];
  for (int i = lane; i < 16 * 8; i += 32) {
    const int k = i / 8, col = i % 8;
    const int at = kLoads == FragmentLoads::kTransposed ? i : col * 16 + k;
    shared_b[at] = shared_b[128 + at] = b[i];
  }
  __syncwarp();
  uint32_t of_a[4], of_b[2];
  if (kLoads == FragmentLoads::kByElement) {
    for (int part = 0; part < 4; ++part) {
      const int row = group + part % 2 * 8, k = pair + part / 2 * 8;
      of_a[part] = Pair(shared_a[row * 16 + k], shared_a[row * 16 + k + 1]);
    }
    for (int part = 0; part < 2; ++part) {
      const int k = pair + part * 8;
      of_b[part] = Pair(shared_b[group * 16 + k], shared_b[group * 16 + k + 1]);
    }
  } else {
    LoadMatrix4(of_a, shared_a + lane % 16 * 16 + lane / 16 * 8);
    uint32_t loaded[4];
    if (kLoads == FragmentLoads::kMatrices) {
      LoadMatrix4(loaded, shared_b + lane % 8 * 16 + lane / 8 % 2 * 8 + lane / 16 * 128);
    } else {
      LoadMatrix4Transposed(loaded, shared_b + lane * 8);
    }
    of_b[0] = loaded[0], of_b[1] = loaded[1];
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = d[(group + i / 2 * 8) * 8 + pair + i % 2];
  MmaBf16(sums, of_a, of_b);
  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + pair + i % 2] = sums[i];
}

__global__ void LoadAtKernel(int offset, uint32_t* out) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  uint32_t loaded[4];
  LoadMatrix4(loaded, shared_memory + offset);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + static_cast<unsigned>(i)] = loaded[i];
}

__global__ void UseLanesKernel(LaneResults* out) {
  const int lane = static_cast<int>(threadIdx.x);
  LaneResults& mine = out[lane];
  mine.from = __shfl_sync(kAllLanes, lane, 3, 8);
  mine.crossed = __shfl_xor_sync(kAllLanes, lane, 5);
  mine.down = __shfl_down_sync(kAllLanes, lane, 2, 16);
  mine.up = __shfl_up_sync(kAllLanes, lane, 2, 16);
  mine.odd = __ballot_sync(kAllLanes, lane % 2);
}

__global__ void CountRemaindersKernel(const int* values, int count, int* counts) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) atomicAdd(counts + values[i] % 8, 1);
}

__global__ void StoreKernel(float* to, float value) { *to = value; }

}  // namespace

void SumOfSquares(Fault fault, const float* in, int blocks, int count, float* out,
                  cudaStream_t stream) {
  using enum Fault;
  constexpr decltype(&Sum<kNone>) kKernels[] = {Sum<kNone>,
                                                Sum<kNoBarrier>,
                                                Sum<kNoWarpBarrier>,
                                                Sum<kRace>,
                                                Sum<kWriteBehindShared>,
                                                Sum<kWriteBeforeShared>,
                                                Sum<kReadBehindShared>,
                                                Sum<kWriteBehindOut>,
                                                Sum<kWriteBeforeOut>,
                                                Sum<kOneTooMany>,
                                                Sum<kMaskWithoutLastLane>,
                                                Sum<kOtherMasks>,
                                                Sum<kDivergentBarrier>,
                                                Sum<kTwoBarriers>,
                                                Sum<kEarlyExit>,
                                                Sum<kOtherCall>};
  kKernels[static_cast<int>(fault)](in, blocks, count, out, stream);
}

void TensorProduct(FragmentLoads loads, const uint16_t* a, const uint16_t* b, float* d,
                   cudaStream_t stream) {
  const LaunchShape warp = {1, 32, 2 * (16 * 16 + 2 * 16 * 8)};
  switch (loads) {
    case FragmentLoads::kByElement:
      return Launch(warp, stream, TensorProductKernel<FragmentLoads::kByElement>, a, b, d);
    case FragmentLoads::kMatrices:
      return Launch(warp, stream, TensorProductKernel<FragmentLoads::kMatrices>, a, b, d);
    case FragmentLoads::kTransposed:
      return Launch(warp, stream, TensorProductKernel<FragmentLoads::kTransposed>, a, b, d);
  }
}

void LoadAt(int offset, size_t shared_bytes, uint32_t* out, cudaStream_t stream) {
  Launch({1, 32, shared_bytes}, stream, LoadAtKernel, offset, out);
}

void UseLanes(LaneResults* out, cudaStream_t stream) {
  Launch({1, 32}, stream, UseLanesKernel, out);
}

void CountRemainders(const int* values, int count, int* counts, cudaStream_t stream) {
  Launch({(static_cast<unsigned>(count) + 63) / 64, 64}, stream, CountRemaindersKernel, values,
         count, counts);
}

void Store(float* to, float value, cudaStream_t stream) {
  Launch({1, 1}, stream, StoreKernel, to, value);
}

}  // namespace sysone
