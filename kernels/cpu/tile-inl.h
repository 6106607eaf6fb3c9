// The register tile that all products go through: kRows rows of A against kPanels panels of B, k
// ascending.
//
// Every element of C is one chain of multiply-adds in the order of k, starting from zero or from
// the value in C, whatever the tile's shape and however k is cut (a partial sum that goes through
// memory is still the same float). So an output does not depend on which rows it was computed with:
// the promise in backend.h holds by construction.
//
// Included once a Highway target: see foreach_target.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SYSONE_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SYSONE_KERNELS_CPU_TILE_INL_H_
#undef SYSONE_KERNELS_CPU_TILE_INL_H_
#else
#define SYSONE_KERNELS_CPU_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 floats, so that widths are compile-time constants on targets with longer vectors.
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
using DU = hn::RebindToUnsigned<DF>;

inline constexpr size_t kLanes = hn::MaxLanes(DF());
inline constexpr size_t kPanelCols = 2 * kLanes;

// Accumulators + two vectors of B + one of A fit the registers: 16 of them, 32 on AVX-512 and on
// Arm.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM
inline constexpr int kTileRows = 12;
#elif HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
inline constexpr int kTileRows = 4;
#else
inline constexpr int kTileRows = 6;
#endif

// One row of a panel as two vectors.
HWY_INLINE void LoadPanelRow(const float* b, VF& low, VF& high) {
  const DF d;
  low = hn::Load(d, b);
  high = hn::Load(d, b + kLanes);
}
HWY_INLINE void LoadPanelRow(const uint16_t* b, VF& low, VF& high) {
  const DF d;
  const DU du;
  const auto both = hn::Load(du, reinterpret_cast<const uint32_t*>(b));
  low = hn::BitCast(d, hn::ShiftLeft<16>(both));
  high = hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000u)));
}

// c[r][p * kPanelCols + j] (+)= Σ_k a[r][k] * b[p][k][j]. `resume` continues the sums in c. `ahead`
// is read ahead of its use, as many bytes as the first panel of b has, spread over the loop:
// weights come from DRAM, and the hardware prefetcher starts anew at every panel. Any address will
// do.
template <int kRows, int kPanels, class B>
HWY_INLINE void Tile(const float* HWY_RESTRICT a, size_t a_stride, const B* HWY_RESTRICT b,
                     size_t panel_stride, size_t k_count, float* HWY_RESTRICT c, size_t c_stride,
                     bool resume, const B* ahead) {
  const DF d;
  VF sums[kRows][kPanels][2];
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      for (int h = 0; h < 2; ++h) {
        const float* from = c + static_cast<size_t>(r) * c_stride +
                            static_cast<size_t>(p) * kPanelCols + static_cast<size_t>(h) * kLanes;
        sums[r][p][h] = resume ? hn::Load(d, from) : hn::Zero(d);
      }
    }
  }
  for (size_t k = 0; k < k_count; ++k) {
    hwy::Prefetch(ahead + k * kPanelCols);
    VF low[kPanels], high[kPanels];
    for (int p = 0; p < kPanels; ++p)
      LoadPanelRow(b + static_cast<size_t>(p) * panel_stride + k * kPanelCols, low[p], high[p]);
    for (int r = 0; r < kRows; ++r) {
      const VF value = hn::Set(d, a[static_cast<size_t>(r) * a_stride + k]);
      for (int p = 0; p < kPanels; ++p) {
        sums[r][p][0] = hn::MulAdd(value, low[p], sums[r][p][0]);
        sums[r][p][1] = hn::MulAdd(value, high[p], sums[r][p][1]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < kPanels; ++p) {
      for (int h = 0; h < 2; ++h) {
        hn::Store(sums[r][p][h], d,
                  c + static_cast<size_t>(r) * c_stride + static_cast<size_t>(p) * kPanelCols +
                      static_cast<size_t>(h) * kLanes);
      }
    }
  }
}

// Tile for 1 ≤ rows ≤ kTileRows, one panel.
template <class B, int kRows = kTileRows>
HWY_INLINE void TileRows(size_t rows, const float* a, size_t a_stride, const B* b, size_t k_count,
                         float* c, size_t c_stride, bool resume, const B* ahead) {
  if constexpr (kRows >= 1) {
    if (rows == kRows)
      Tile<kRows, 1>(a, a_stride, b, 0, k_count, c, c_stride, resume, ahead);
    else
      TileRows<B, kRows - 1>(rows, a, a_stride, b, k_count, c, c_stride, resume, ahead);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
