// The register tile of the int8 products: kRows rows of int16 activations against one panel of
// weights. Two neighbours of k at a time: a 32-bit lane holds both, and one instruction multiplies
// and adds them (vpmaddwd). Sums are exact, so the order and the tile's shape cannot be seen in the
// result.
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

#include <cstring>

#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;

#if HWY_TARGET == HWY_SCALAR

// `count` weights from int8 to int16.
HWY_INLINE void Widen(const int8_t* from, size_t count, int16_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i];
}

// As below.
template <int kRows, class B>
HWY_INLINE void Int8Tile(const int16_t* HWY_RESTRICT a, const B* HWY_RESTRICT b, size_t pairs,
                         int32_t* HWY_RESTRICT sums, size_t sums_stride, bool resume,
                         const int8_t* /*ahead*/) {
  for (size_t r = 0; r < kRows; ++r, sums += sums_stride) {
    for (size_t c = 0; c < kPanelCols; ++c) {
      int32_t sum = resume ? sums[c] : 0;
      for (size_t i = 0; i < pairs; ++i) {
        const int16_t* const x = a + (i * kTileRows + r) * 2;
        const B* const w = b + (i * kPanelCols + c) * 2;
        sum += x[0] * w[0] + x[1] * w[1];
      }
      sums[c] = sum;
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
  VI16 product;
  asm("vpmaddwd %[b], %[a], %[product]\n\tvpaddd %[product], %[sum], %[sum]"
      : [sum] "+v"(even.raw), [product] "=&v"(product.raw)
      : [a] "v"(a.raw), [b] "v"(b.raw));
  static_cast<void>(odd);
#else
  even = hn::ReorderWidenMulAccumulate(DI(), a, b, even, odd);
#endif
}

// kLanes columns of a panel row: [kLanes][2 of k].
HWY_INLINE VI16 LoadPairs(const int16_t* b) { return hn::Load(DI16(), b); }
HWY_INLINE VI16 LoadPairs(const int8_t* b) {
  return hn::PromoteTo(DI16(), hn::Load(hn::Rebind<int8_t, DI16>(), b));
}

// `count` weights from int8 to int16, whole vectors.
HWY_INLINE void Widen(const int8_t* from, size_t count, int16_t* to) {
  for (size_t i = 0; i < count; i += 2 * kLanes) hn::Store(LoadPairs(from + i), DI16(), to + i);
}

// sums[r][j] (+)= Σ_k a[k / 2][r][k % 2] * b[k / 2][j][k % 2] over 2 * pairs values of k, pairs a
// multiple of 4. `resume` continues the sums. `ahead`: weights that are read ahead of their use,
// spread over the loop. Any address will do.
template <int kRows, class B>
HWY_INLINE void Int8Tile(const int16_t* HWY_RESTRICT a, const B* HWY_RESTRICT b, size_t pairs,
                         int32_t* HWY_RESTRICT sums, size_t sums_stride, bool resume,
                         const int8_t* ahead) {
  const DI d;
  VI even[kRows][2], odd[kRows][2];  // on x86 the first takes all and the second stays zero
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) {
      const int32_t* from =
          sums + static_cast<size_t>(r) * sums_stride + static_cast<size_t>(h) * kLanes;
      even[r][h] = resume ? hn::Load(d, from) : hn::Zero(d);
      odd[r][h] = hn::Zero(d);
    }
  }
  const auto step = [&](size_t i) HWY_ATTR {
    const B* at = b + i * 2 * kPanelCols;
    const VI16 low = LoadPairs(at), high = LoadPairs(at + 2 * kLanes);
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, a + (i * kTileRows + static_cast<size_t>(r)) * 2, sizeof(pair));
      const VI16 value = hn::BitCast(DI16(), hn::Set(d, pair));
      AddProducts(value, low, even[r][0], odd[r][0]);
      AddProducts(value, high, even[r][1], odd[r][1]);
    }
  };
  for (size_t i = 0; i < pairs; i += 4) {
    for (size_t line = 0; line < 8 * kPanelCols; line += 64)
      hwy::Prefetch(ahead + i * 2 * kPanelCols + line);
    step(i);
    step(i + 1);
    step(i + 2);
    step(i + 3);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) {
      hn::Store(hn::RearrangeToOddPlusEven(even[r][h], odd[r][h]), d,
                sums + static_cast<size_t>(r) * sums_stride + static_cast<size_t>(h) * kLanes);
    }
  }
}

#endif  // HWY_SCALAR

// Int8Tile for 1 ≤ rows ≤ kTileRows.
template <class B, int kRows = kTileRows>
HWY_INLINE void Int8TileRows(int64_t rows, const int16_t* a, const B* b, size_t pairs,
                             int32_t* sums, size_t sums_stride, bool resume, const int8_t* ahead) {
  if constexpr (kRows >= 1) {
    if (rows == kRows)
      Int8Tile<kRows>(a, b, pairs, sums, sums_stride, resume, ahead);
    else
      Int8TileRows<B, kRows - 1>(rows, a, b, pairs, sums, sums_stride, resume, ahead);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
