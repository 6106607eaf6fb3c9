// The register tile of the int8 products: kRows rows of int16 activations against one panel of
// weights. Two neighbours of k at a time: a 32-bit lane holds both, and one instruction multiplies
// and adds them (vpmaddwd). A group's integer sum is exact, and each element of the result is one
// chain of multiply-adds over the groups in their order, whatever the tile's shape and however k is
// cut between groups.
//
// Activations lie in the order of their use, [k / 2][kTileRows][2 of k]: as rows of their own, they
// would compete for the same banks and sets of the first-level cache, a sixth slower and more.
//
// Included once a Highway target: see foreach_target.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SYSONE_KERNELS_CPU_INT8_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SYSONE_KERNELS_CPU_INT8_TILE_INL_H_
#undef SYSONE_KERNELS_CPU_INT8_TILE_INL_H_
#else
#define SYSONE_KERNELS_CPU_INT8_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/tile-inl.h"
#include "kernels/int8.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;

#if HWY_TARGET == HWY_SCALAR

// As below.
template <int kRows>
HWY_INLINE void Int8Tile(const int16_t* HWY_RESTRICT a, const float* HWY_RESTRICT group_sums,
                         const int8_t* HWY_RESTRICT b, const float* HWY_RESTRICT scales,
                         size_t depth, float* HWY_RESTRICT sums, size_t sums_stride, bool resume,
                         const int8_t* /*ahead*/) {
  for (size_t r = 0; r < kRows; ++r, sums += sums_stride) {
    for (size_t c = 0; c < kPanelCols; ++c) {
      float all = resume ? sums[c] : 0.0f;
      const float* scale = scales + c;
      const float* group_sum = group_sums + r;
      for (size_t k = 0; k < depth; scale += 2 * kPanelCols, group_sum += kTileRows) {
        int32_t sum = 0;
        for (const size_t end = std::min(depth, k + kInt8Group); k < end; k += 2) {
          const int16_t* const x = a + k * kTileRows + 2 * r;
          const int8_t* const w = b + k * kPanelCols + 2 * c;
          sum += x[0] * w[0] + x[1] * w[1];
        }
        all += static_cast<float>(sum) * scale[0] + *group_sum * scale[kPanelCols];
      }
      sums[c] = all;
    }
  }
}

#else

using VI = hn::Vec<DI>;
using DI16 = hn::Repartition<int16_t, DI>;
using VI16 = hn::Vec<DI16>;

// even (and odd, where an instruction set needs two) += the products of a's and b's pairs.
HWY_INLINE void AddProducts(VI16 a, VI16 b, VI& even, VI& odd) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // The compiler knows that integer sums may be reordered, sums up several steps first, and runs out
  // of registers: a third slower.
  auto sum = even.raw;
  decltype(a.raw) product;
  asm("vpmaddwd %[b], %[a], %[product]\n\tvpaddd %[product], %[sum], %[sum]"
      : [sum] "+v"(sum), [product] "=&v"(product)
      : [a] "v"(a.raw), [b] "v"(b.raw));
  even.raw = sum;
  static_cast<void>(odd);
#else
  even = hn::ReorderWidenMulAccumulate(DI(), a, b, even, odd);
#endif
}

// kLanes columns of a panel row, [kLanes][2 of k].
HWY_INLINE VI16 LoadPairs(const int8_t* b) {
  return hn::PromoteTo(DI16(), hn::Load(hn::Rebind<int8_t, DI16>(), b));
}

// sums[r][j] (+)= Σ_groups scales[group][0][j] · Σ_k a[k / 2][r][k % 2] * b[k / 2][j][k % 2] +
// scales[group][1][j] · group_sums[group][r], k below depth, a multiple of 8, in groups of
// kInt8Group. `resume` continues the sums. `ahead`: weights that
// are read ahead of their use, spread over the loop. Any address will do.
template <int kRows>
HWY_INLINE void Int8Tile(const int16_t* HWY_RESTRICT a, const float* HWY_RESTRICT group_sums,
                         const int8_t* HWY_RESTRICT b, const float* HWY_RESTRICT scales,
                         size_t depth, float* HWY_RESTRICT sums, size_t sums_stride, bool resume,
                         const int8_t* ahead) {
  const DF d;
  const DI di;
  for (size_t k = 0; k < depth; scales += 2 * kPanelCols, group_sums += kTileRows) {
    VI even[kRows][2], odd[kRows][2];  // on x86 the first takes all and the second stays zero
    for (int r = 0; r < kRows; ++r)
      for (int h = 0; h < 2; ++h) even[r][h] = odd[r][h] = hn::Zero(di);
    for (const size_t end = HWY_MIN(depth, k + kInt8Group); k < end; k += 8) {
      for (size_t line = 0; line < 8 * kPanelCols; line += 64)
        hwy::Prefetch(ahead + k * kPanelCols + line);
#pragma GCC unroll 4
      for (size_t j = k; j < k + 8; j += 2) {
        const int8_t* const at = b + j * kPanelCols;
        const VI16 low = LoadPairs(at), high = LoadPairs(at + 2 * kLanes);
        for (int r = 0; r < kRows; ++r) {
          int32_t pair;
          std::memcpy(&pair, a + j * kTileRows + static_cast<size_t>(r) * 2, sizeof(pair));
          const VI16 value = hn::BitCast(DI16(), hn::Set(di, pair));
          AddProducts(value, low, even[r][0], odd[r][0]);
          AddProducts(value, high, even[r][1], odd[r][1]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (size_t h = 0; h < 2; ++h) {
        float* const to = sums + static_cast<size_t>(r) * sums_stride + h * kLanes;
        const VF sum = hn::ConvertTo(d, hn::RearrangeToOddPlusEven(even[r][h], odd[r][h]));
        const VF scale = hn::Load(d, scales + h * kLanes);
        const VF middle = hn::Load(d, scales + kPanelCols + h * kLanes);
        const VF before = resume ? hn::Load(d, to) : hn::Zero(d);
        const VF group_sum = hn::Set(d, group_sums[r]);
        hn::Store(hn::MulAdd(sum, scale, hn::MulAdd(group_sum, middle, before)), d, to);
      }
    }
    resume = true;
  }
}

#endif  // HWY_SCALAR

// Int8Tile for 1 ≤ rows ≤ kTileRows.
template <int kRows = kTileRows>
HWY_INLINE void Int8TileRows(int64_t rows, const int16_t* a, const float* group_sums,
                             const int8_t* b, const float* scales, size_t depth, float* sums,
                             size_t sums_stride, bool resume, const int8_t* ahead) {
  if constexpr (kRows >= 1) {
    if (rows == kRows)
      Int8Tile<kRows>(a, group_sums, b, scales, depth, sums, sums_stride, resume, ahead);
    else
      Int8TileRows<kRows - 1>(rows, a, group_sums, b, scales, depth, sums, sums_stride, resume,
                              ahead);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
