// The register tile of the int8 products: kRows rows of activations against one panel of weights. Four neighbours of k at a
// time, or two if codes are words: a 32-bit lane holds them, unsigned codes of the weights and signed ones of the activations. How they are multiplied
// and added is the instruction set's business (AddProducts); a group's integer sum is exact in every way, and
// each element of the result is one chain of multiply-adds over the groups in their order, whatever the tile's shape and
// however k is cut between groups. Sets that add products of bytes in 16 bits have a tile of their own for these:
// int8_pair_tile-inl.h.
//
// Activations lie in the order of their use, [lanes of k][kTileRows]: as rows of their own, they would compete for the
// same banks and sets of the first-level cache, a sixth slower and more.
//
// Included once a Highway target: see foreach_target.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SYSONE_KERNELS_CPU_INT8_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SYSONE_KERNELS_CPU_INT8_TILE_INL_H_
#undef SYSONE_KERNELS_CPU_INT8_TILE_INL_H_
#else
#define SYSONE_KERNELS_CPU_INT8_TILE_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "kernels/cpu/kernel_tables.h"
#include "kernels/cpu/tile-inl.h"
#include "kernels/int8.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

// What a group of a panel consists of, codes as bytes.
inline constexpr size_t kScaleBytes = 2 * kPanelCols * sizeof(float);
inline constexpr size_t kCodeBytes = static_cast<size_t>(kInt8Group) * kPanelCols;

// Of a group that is ready to be multiplied.
constexpr size_t ReadyBytes(Codes codes) {
  return kScaleBytes + (codes == Codes::kWords ? 2 : 1) * kCodeBytes;
}

// Whether codes of bytes go in pairs of groups: where no instruction adds four products of bytes to 32 bits.
inline constexpr bool kPairs = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

// sum += products of the weights and activations of every 32-bit lane. In assembly, because the compiler knows that integer sums may
// be reordered, sums up several steps first, and runs out of registers: a third slower.
template <Codes kCodes>
HWY_INLINE void AddProducts(VI weights, VI activations, VI& sum) {
  constexpr bool kWords = kCodes == Codes::kWords;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static_assert(kWords);
  decltype(sum.raw) product;
  asm("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
      : "+v"(sum.raw), "=&v"(product)
      : "v"(activations.raw), "v"(weights.raw));
#elif HWY_TARGET == HWY_AVX3_DL
  if constexpr (kWords)
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(activations.raw));
  else
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(activations.raw));
#else
  if constexpr (kWords) {
    const auto low = [](VI lane) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(lane)); };
    sum = hn::Add(sum, hn::Mul(low(weights), low(activations)));
    sum = hn::Add(sum, hn::Mul(hn::ShiftRight<16>(weights), hn::ShiftRight<16>(activations)));
    return;
  }
  const hn::RebindToUnsigned<DI> du;
  const auto byte = hn::Set(du, 0xFF);
  for (int at = 0; at < 32; at += 8) {
    const auto weight = hn::And(hn::ShiftRightSame(hn::BitCast(du, weights), at), byte);
    const VI activation = hn::ShiftRight<24>(hn::ShiftLeftSame(activations, 24 - at));
    sum = hn::Add(sum, hn::Mul(hn::BitCast(DI(), weight), activation));
  }
#endif
}

// The products that a sum begins with.
template <Codes kCodes>
HWY_INLINE VI Products(VI weights, VI activations) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  VI sum;
  asm("vpmaddwd %1, %2, %0" : "=v"(sum.raw) : "v"(activations.raw), "v"(weights.raw));
#else
  VI sum = hn::Zero(DI());
  AddProducts<kCodes>(weights, activations, sum);
#endif
  return sum;
}

// A lane of each of kLanes columns of a panel.
HWY_INLINE VI LoadCodes(const uint8_t* b) {
#if HWY_TARGET == HWY_SCALAR
  int32_t four;
  std::memcpy(&four, b, sizeof(four));
  return hn::Set(DI(), four);
#else
  return hn::BitCast(DI(), hn::Load(hn::Repartition<uint8_t, DI>(), b));
#endif
}

// products[r] = Σ_k a[k][r] · codes[k] over a group.
template <Codes kCodes, int kRows>
HWY_INLINE void MultiplyGroup(const int32_t* HWY_RESTRICT a, const uint8_t* HWY_RESTRICT codes,
                              VI (&products)[kRows][2]) {
  constexpr size_t kGroupLanes = LanesOfGroup(kCodes == Codes::kWords);
#pragma GCC unroll 16
  for (size_t lane = 0; lane < kGroupLanes; ++lane) {
    const uint8_t* const at = codes + lane * 4 * kPanelCols;
    const VI low = LoadCodes(at), high = LoadCodes(at + 4 * kLanes);
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const VI value = hn::Set(DI(), a[lane * kTileRows + r]);
      if (lane == 0) {
        products[r][0] = Products<kCodes>(low, value);
        products[r][1] = Products<kCodes>(high, value);
      } else {
        AddProducts<kCodes>(low, value, products[r][0]);
        AddProducts<kCodes>(high, value, products[r][1]);
      }
    }
  }
}

// sums[r][j] (+)= Σ_groups step[r] · scale[j] · Σ_k a[k][r] · codes[k][j] + total[r] · low[j] over
// `groups` groups, step and total being the two parts of `steps`. `resume` continues the sums. `ahead`: weights that are read
// ahead of their use, `ahead_bytes` a group. Any address will do.
template <Codes kCodes, int kRows>
HWY_INLINE void Int8Tile(const int32_t* HWY_RESTRICT a, const float* HWY_RESTRICT steps,
                         const std::byte* HWY_RESTRICT b, size_t groups, float* HWY_RESTRICT sums,
                         size_t sums_stride, bool resume, const std::byte* ahead,
                         size_t ahead_bytes) {
  const DF d;
  for (size_t g = 0; g < groups; ++g) {
    for (size_t line = 0; line < ahead_bytes; line += 64) hwy::Prefetch(ahead + line);
    ahead += ahead_bytes;
    const auto* const scales = reinterpret_cast<const float*>(b);
    VI products[kRows][2];
    MultiplyGroup<kCodes>(a, reinterpret_cast<const uint8_t*>(b + kScaleBytes), products);
    // Scales, then lows: there are registers for two vectors.
    VF scaled[kRows][2];
    for (size_t h = 0; h < 2; ++h) {
      const VF stored_scales = hn::Load(d, scales + h * kLanes);
#pragma GCC unroll 16
      for (size_t r = 0; r < kRows; ++r)
        scaled[r][h] = hn::Mul(hn::ConvertTo(d, products[r][h]), stored_scales);
    }
    const VF lows[2] = {hn::Load(d, scales + kPanelCols),
                        hn::Load(d, scales + kPanelCols + kLanes)};
#pragma GCC unroll 16
    for (size_t r = 0; r < kRows; ++r) {
      const VF step = hn::Set(d, steps[r]), total = hn::Set(d, steps[kTileRows + r]);
      for (size_t h = 0; h < 2; ++h) {
        float* const to = sums + r * sums_stride + h * kLanes;
        const VF before = resume ? hn::Load(d, to) : hn::Zero(d);
        hn::Store(hn::MulAdd(total, lows[h], hn::MulAdd(scaled[r][h], step, before)), d, to);
      }
    }
    resume = true;
    a += LanesOfGroup(kCodes == Codes::kWords) * kTileRows;
    b += ReadyBytes(kCodes);
    steps += 2 * kTileRows;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
