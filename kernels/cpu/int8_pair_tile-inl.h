// The register tile of the int8 products where vpmaddubsw multiplies bytes: it adds two products in 16 bits. A 32-bit lane therefore
// holds two neighbours of k of each of two groups, its lower half belongs to the one and its upper half to the other, and one
// vpmaddwd with a pair of scales finishes both groups: half of the instructions that two groups apart would take for it.
//
// Half bytes stand for q - kCentre, whose sums over a group fit 16 bits. Those of q do not, but wrap: a sum that begins with
// -kCentre · Σ activations ends right.
//
// Panels, a unit being a pair of groups, unpacked:
//   int16_t scale[cols][2 groups]; unless kCentred, float low[2 groups][cols], of q - kCentre if half bytes;
//   uint8_t codes[kPairLanes][cols][2 groups][2 of k]; packed half bytes: [kPairLanes / 2], even lanes in the lower halves
// Activations: int8_t[kPairLanes][kTileRows][2 groups][2 of k], and for each pair
//   float step[kTileRows]; int16_t start[kTileRows][2 groups]; float total[2 groups][kTileRows], step · Σ activations
//
// Included once a Highway target: see foreach_target.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SYSONE_KERNELS_CPU_INT8_PAIR_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SYSONE_KERNELS_CPU_INT8_PAIR_TILE_INL_H_
#undef SYSONE_KERNELS_CPU_INT8_PAIR_TILE_INL_H_
#else
#define SYSONE_KERNELS_CPU_INT8_PAIR_TILE_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "kernels/cpu/int8_tile-inl.h"
#include "kernels/cpu/kernel_tables.h"
#include "kernels/int8.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {

inline constexpr size_t kPairLanes = kStepGroup / 4;
inline constexpr size_t kPairCodes = 2 * kCodeBytes;
// Before the codes of a pair.
constexpr size_t PairHeader(Codes codes) {
  return kPanelCols * sizeof(float) * (codes == Codes::kCentred ? 1 : 3);
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// The codes of two groups to the lanes of a row in a tile.
HWY_INLINE void StorePair(const int8_t* first, const int8_t* second, int32_t* row) {
  const hn::FixedTag<uint16_t, 8> d;
  alignas(16) uint16_t lanes[2 * kPairLanes];
  for (size_t i = 0; i < kInt8Group; i += 16) {
    const auto a = hn::Load(d, reinterpret_cast<const uint16_t*>(first + i));
    const auto b = hn::Load(d, reinterpret_cast<const uint16_t*>(second + i));
    hn::Store(hn::InterleaveLower(d, a, b), d, lanes + i);
    hn::Store(hn::InterleaveUpper(d, a, b), d, lanes + i + 8);
  }
#pragma GCC unroll 16
  for (size_t lane = 0; lane < kPairLanes; ++lane)
    std::memcpy(row + lane * kTileRows, lanes + 2 * lane, sizeof(*row));
}

// The products of one lane of a row with those of two vectors of columns, added to its sums. In assembly, as in the other tile, and
// so that two registers do.
HWY_INLINE void AddHalfBytes(const int32_t& activations, VI low, VI high, VI (&sums)[2]) {
  decltype(low.raw) value, product;
  asm("vpbroadcastd %6, %2\n\t"
      "vpmaddubsw %2, %4, %3\n\tvpaddw %3, %0, %0\n\t"
      "vpmaddubsw %2, %5, %2\n\tvpaddw %2, %1, %1"
      : "+v"(sums[0].raw), "+v"(sums[1].raw), "=&v"(value), "=&v"(product)
      : "v"(low.raw), "v"(high.raw), "m"(activations));
}
// Likewise, times their scales in memory.
HWY_INLINE void AddBytes(const int32_t& activations, VI low, VI high, const VI* scales,
                         VI (&sums)[2]) {
  decltype(low.raw) value, product;
  asm("vpbroadcastd %6, %2\n\t"
      "vpmaddubsw %2, %4, %3\n\tvpmaddwd %7, %3, %3\n\tvpaddd %3, %0, %0\n\t"
      "vpmaddubsw %2, %5, %2\n\tvpmaddwd %8, %2, %2\n\tvpaddd %2, %1, %1"
      : "+v"(sums[0].raw), "+v"(sums[1].raw), "=&v"(value), "=&v"(product)
      : "v"(low.raw), "v"(high.raw), "m"(activations), "m"(scales[0].raw), "m"(scales[1].raw));
}

// sums[r][j] (+)= Σ_pairs step[r] · Σ_k a[k][r] · code[k][j] · scale[k][j] + Σ_groups total[r] · low[j]; as Int8Tile, but for
// pairs of groups. `ahead_bytes` a pair.
template <Codes kCodes, int kRows>
HWY_INLINE void PairTile(const int32_t* HWY_RESTRICT a, const float* HWY_RESTRICT steps,
                         const std::byte* HWY_RESTRICT b, size_t pairs, float* HWY_RESTRICT sums,
                         size_t sums_stride, bool resume, const std::byte* ahead,
                         size_t ahead_bytes) {
  const DF d;
  const DI di;
  for (; pairs > 0; --pairs) {
    for (size_t line = 0; line < ahead_bytes; line += 64) hwy::Prefetch(ahead + line);
    ahead += ahead_bytes;
    const auto* const scales = reinterpret_cast<const VI*>(b);
    const auto* const codes = reinterpret_cast<const uint8_t*>(b + PairHeader(kCodes));
    VI products[kRows][2];
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      products[r][0] =
          AreHalfBytes(kCodes) ? hn::BitCast(di, hn::Set(d, steps[kTileRows + r])) : hn::Zero(di);
      products[r][1] = products[r][0];
    }
#pragma GCC unroll 16
    for (size_t lane = 0; lane < kPairLanes; ++lane) {
      const uint8_t* const at = codes + lane * 4 * kPanelCols;
      const VI low = LoadCodes(at), high = LoadCodes(at + 4 * kLanes);
#pragma GCC unroll 16
      for (size_t r = 0; r < kRows; ++r) {
        if constexpr (AreHalfBytes(kCodes))
          AddHalfBytes(a[lane * kTileRows + r], low, high, products[r]);
        else
          AddBytes(a[lane * kTileRows + r], low, high, scales, products[r]);
      }
    }
    const auto* const lows = reinterpret_cast<const float*>(scales + 2);
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t h = 0; h < 2; ++h) {
        VI& product = products[r][h];
        if constexpr (AreHalfBytes(kCodes))
          asm("vpmaddwd %1, %0, %0" : "+v"(product.raw) : "m"(scales[h].raw));
        float* const to = sums + r * sums_stride + h * kLanes;
        VF sum = hn::MulAdd(hn::ConvertTo(d, product), hn::Set(d, steps[r]),
                            resume ? hn::Load(d, to) : hn::Zero(d));
        if constexpr (kCodes != Codes::kCentred) {
          for (size_t group = 0; group < 2; ++group)
            sum = hn::MulAdd(hn::Set(d, steps[(2 + group) * kTileRows + r]),
                             hn::Load(d, lows + group * kPanelCols + h * kLanes), sum);
        }
        hn::Store(sum, d, to);
      }
    }
    resume = true;
    a += kPairLanes * kTileRows;
    b += PairHeader(kCodes) + kPairCodes;
    steps += 4 * kTileRows;
  }
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
