// Instructions of the tensor cores that CUDA C++ has no names for. In a folder of its own, because the tests put another ptx.h
// in its place, which does the same on a CPU: include it as <ptx.h>.
//
// All of them are executed by the 32 lanes of a warp together. Layouts are those of the PTX ISA, "mma.m16n8k16 with floating
// point type"; with group = lane / 4 and pair = lane % 4 * 2, a lane holds
//   a[0] A[group    ][pair, pair + 1]      a[1] A[group + 8][pair, pair + 1]
//   a[2] A[group    ][pair + 8, pair + 9]  a[3] A[group + 8][pair + 8, pair + 9]
//   b[0] B[pair, pair + 1][group]          b[1] B[pair + 8, pair + 9][group]
//   d[0], d[1] D[group][pair, pair + 1]    d[2], d[3] D[group + 8][pair, pair + 1]
// and of two bfloat16 in a register the one of the smaller index is in the lower half.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sysone {

// d[16, 8] += a[16, 16] · b[16, 8]; a and b bfloat16, d float32.
__device__ inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four matrices of 8 rows of 8 bfloat16 from shared memory. Lane i gives the address of row i % 8 of matrix i / 8, 16 bytes that
// begin at a multiple of 16; it receives of each matrix j in r[j] the elements [lane / 4][lane % 4 * 2] and the next of that row.
__device__ inline void LoadMatrix4(uint32_t (&r)[4], const void* shared) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same with each matrix transposed: r[j] receives [lane % 4 * 2][lane / 4] and the next of that column.
__device__ inline void LoadMatrix4Transposed(uint32_t (&r)[4], const void* shared) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace sysone
