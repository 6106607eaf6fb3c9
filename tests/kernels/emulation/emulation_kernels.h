// Small kernels that the tests of the emulated device run: right ones, and the same with one fault each.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace sysone {

// What is wrong with SumOfSquares.
enum class Fault {
  kNone,
  kNoBarrier,          // between the warps' sums and who adds them
  kNoWarpBarrier,      // between a lane's store and another one's load
  kRace,               // all warps store their sum to the same place
  kWriteBehindShared,  // a sum too many
  kWriteBeforeShared,  // the other way
  kReadBehindShared,
  kWriteBehindOut,  // to the result of a block that is not there
  kWriteBeforeOut,  // the other way
  kOneTooMany,      // <= for <: a value behind the last one
  kMaskWithoutLastLane,
  kOtherMasks,        // half a warp names all lanes, half of it itself
  kDivergentBarrier,  // the last warp does not come
  kTwoBarriers,       // each half of the block at one of its own
  kEarlyExit,         // a lane leaves before its warp's shuffle
  kOtherCall,         // a lane votes while the others shuffle
};

constexpr int kSquares = 128;  // values and threads of a block

// out[block] = sum of the squares of the first `count` (at most kSquares) values of in[block * kSquares …].
void SumOfSquares(Fault fault, const float* in, int blocks, int count, float* out,
                  cudaStream_t stream);

// How a warp gets its fragments of the product below.
enum class FragmentLoads {
  kByElement,   // as the layouts of ptx.h say
  kMatrices,    // LoadMatrix4, b as [8, 16]
  kTransposed,  // LoadMatrix4Transposed for b, as [16, 8]
};
// d [16, 8] += a [16, 16] · b [16, 8], all row-major, a and b the bits of bfloat16.
void TensorProduct(FragmentLoads loads, const uint16_t* a, const uint16_t* b, float* d,
                   cudaStream_t stream);

// LoadMatrix4 at `offset` bytes behind the start of `shared_bytes` of shared memory, in every lane.
void LoadAt(int offset, size_t shared_bytes, uint32_t* out, cudaStream_t stream);

// out[lane] of each: __shfl_sync from lane 3 of eight, xor 5, down 2 and up 2 of sixteen, ballot of the odd lanes.
struct LaneResults {
  int from, crossed, down, up;
  uint32_t odd;
};
void UseLanes(LaneResults* out, cudaStream_t stream);

// counts[value % 8] += 1 for all `count` values.
void CountRemainders(const int* values, int count, int* counts, cudaStream_t stream);

// *to = value
void Store(float* to, float value, cudaStream_t stream);

}  // namespace sysone
