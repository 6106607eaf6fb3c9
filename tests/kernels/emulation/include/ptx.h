// The tensor cores' instructions on a CPU: twins of kernels/cuda/ptx/ptx.h, which describes them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tests/kernels/emulation/device_functions.h"

namespace sysone {
namespace emulation {

// Element `half` (0: lower) of two bfloat16 in a register.
inline float Bfloat16Of(uint32_t pair, int half) {
  return std::bit_cast<float>(half == 0 ? pair << 16 : pair & 0xFFFF0000u);
}

struct Mma {
  float* d;
  const uint32_t *a, *b;

  static void All(void* const* brought, uint32_t) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const Mma& mma = *static_cast<const Mma*>(brought[lane]);
      const int group = lane / 4, pair = lane % 4 * 2;
      for (int half = 0; half < 2; ++half) {
        for (int part = 0; part < 4; ++part) {
          a[group + part % 2 * 8][pair + part / 2 * 8 + half] = Bfloat16Of(mma.a[part], half);
        }
        for (int part = 0; part < 2; ++part) {
          b[pair + part * 8 + half][group] = Bfloat16Of(mma.b[part], half);
        }
      }
    }
    float d[16][8] = {};
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < 16; ++k) {
        for (int col = 0; col < 8; ++col) d[row][col] += a[row][k] * b[k][col];
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      float* sum = static_cast<const Mma*>(brought[lane])->d;
      for (int i = 0; i < 4; ++i) sum[i] += d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
  }
};

struct MatrixRow {
  uint32_t* r;
  const uint16_t* row;

  template <bool kTransposed>
  static void All(void* const* brought, uint32_t) {
    uint32_t loaded[32][4];
    for (int lane = 0; lane < 32; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        const auto element = [&](int i) -> uint32_t {
          const int row = kTransposed ? lane % 4 * 2 + i : lane / 4;
          const int col = kTransposed ? lane / 4 : lane % 4 * 2 + i;
          return static_cast<const MatrixRow*>(brought[matrix * 8 + row])->row[col];
        };
        loaded[lane][matrix] = element(0) | element(1) << 16;
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      std::memcpy(static_cast<const MatrixRow*>(brought[lane])->r, loaded[lane], sizeof loaded[0]);
    }
  }
};

template <bool kTransposed>
void LoadMatrices(const char* what, uint32_t (&r)[4], const void* shared, const Place& place) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0) {
    FailKernel("a row of a matrix begins at no multiple of 16 bytes", place);
  }
  if (!InSharedMemory(shared, 16))
    FailKernel("a row of a matrix lies outside of shared memory", place);
  MatrixRow row{r, static_cast<const uint16_t*>(shared)};
  WaitForLanes(what, 0xFFFFFFFF, &row, MatrixRow::All<kTransposed>, place);
}

}  // namespace emulation

inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                    emulation::Place place = emulation::Place::current()) {
  emulation::Mma mma{d, a, b};
  emulation::WaitForLanes("MmaBf16", 0xFFFFFFFF, &mma, emulation::Mma::All, place);
}

inline void LoadMatrix4(uint32_t (&r)[4], const void* shared,
                        emulation::Place place = emulation::Place::current()) {
  emulation::LoadMatrices<false>("LoadMatrix4", r, shared, place);
}

inline void LoadMatrix4Transposed(uint32_t (&r)[4], const void* shared,
                                  emulation::Place place = emulation::Place::current()) {
  emulation::LoadMatrices<true>("LoadMatrix4Transposed", r, shared, place);
}

}  // namespace sysone
