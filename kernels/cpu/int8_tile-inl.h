// The register tile of the int8 products: kRows rows of activations against one panel of weights. Four neighbours of k at a
// time, or two if codes are words: a 32-bit lane holds them, unsigned codes of the weights and signed ones of the activations. How they are multiplied
// and added is the instruction set's business (AddProducts); a group's integer sum is exact in every way, and
// each element of the result is one chain of multiply-adds over the groups in their order, whatever the tile's shape and
// however k is cut between groups.
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

// A sum keeps for every 32-bit lane the products of the weights and activations that lie there: Products begins one,
// AddProducts adds to it, those of a group at most, and Scaled gives what it comes to, times the columns' scales as StoreScale has
// written them.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Two ones of 16 bits in every lane.
HWY_INLINE VI Ones16() { return hn::Set(DI(), 0x00010001); }

// In assembly, because the compiler knows that integer sums may be reordered, sums up several
// steps first, and runs out of registers: a third slower. Half bytes are summed in pairs of 16 bits.
template <Codes kCodes>
HWY_INLINE VI Products(VI weights, VI activations) {
  VI sum;
  if constexpr (kCodes == Codes::kWords) {
    asm("vpmaddwd %1, %2, %0" : "=v"(sum.raw) : "v"(activations.raw), "v"(weights.raw));
    return sum;
  }
  asm("vpmaddubsw %1, %2, %0" : "=v"(sum.raw) : "v"(activations.raw), "v"(weights.raw));
  if constexpr (kCodes == Codes::kBytes)
    asm("vpmaddwd %1, %0, %0" : "+v"(sum.raw) : "v"(Ones16().raw));
  return sum;
}
template <Codes kCodes>
HWY_INLINE void AddProducts(VI weights, VI activations, VI& sum) {
  decltype(sum.raw) product;
  if constexpr (kCodes == Codes::kHalfBytes) {
    asm("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0"
        : "+v"(sum.raw), "=&v"(product)
        : "v"(activations.raw), "v"(weights.raw));
  } else if constexpr (kCodes == Codes::kWords) {
    asm("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0"
        : "+v"(sum.raw), "=&v"(product)
        : "v"(activations.raw), "v"(weights.raw));
  } else {
    asm("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+v"(sum.raw), "=&v"(product)
        : "v"(activations.raw), "v"(weights.raw), "v"(Ones16().raw));
  }
}
// Scales of half bytes lie twice in a lane, because its sum is two of 16 bits: one instruction scales and adds them.
template <Codes kCodes>
HWY_INLINE void StoreScale(int16_t scale, float* to) {
  const int16_t twice[2] = {scale, scale};
  if constexpr (kCodes == Codes::kHalfBytes)
    std::memcpy(to, twice, sizeof(twice));
  else
    *to = scale;
}
template <Codes kCodes>
HWY_INLINE VF Scales(const float* from) {
  const VF scales = hn::Load(DF(), from);
  if constexpr (kCodes != Codes::kHalfBytes) return scales;
  return hn::ConvertTo(DF(), hn::And(hn::BitCast(DI(), scales), hn::Set(DI(), 0xFFFF)));
}
template <Codes kCodes>
HWY_INLINE VF Scaled(VI sum, VF stored_scales) {
  if constexpr (kCodes != Codes::kHalfBytes)
    return hn::Mul(hn::ConvertTo(DF(), sum), stored_scales);
  asm("vpmaddwd %1, %0, %0" : "+v"(sum.raw) : "v"(stored_scales.raw));
  return hn::ConvertTo(DF(), sum);
}

#else

// As above.
template <Codes kCodes>
HWY_INLINE void AddProducts(VI weights, VI activations, VI& sum) {
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (kCodes == Codes::kWords)
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(activations.raw));
  else
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(activations.raw));
#else
  if constexpr (kCodes == Codes::kWords) {
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
// As above.
template <Codes kCodes>
HWY_INLINE VI Products(VI weights, VI activations) {
  VI sum = hn::Zero(DI());
  AddProducts<kCodes>(weights, activations, sum);
  return sum;
}
// As above.
template <Codes>
HWY_INLINE void StoreScale(int16_t scale, float* to) {
  *to = scale;
}
template <Codes>
HWY_INLINE VF Scales(const float* from) {
  return hn::Load(DF(), from);
}
template <Codes>
HWY_INLINE VF Scaled(VI sum, VF stored_scales) {
  return hn::Mul(hn::ConvertTo(DF(), sum), stored_scales);
}

#endif

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

// products[r] = Σ_k a[k][r] · codes[k] over a group, before Scaled.
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
        scaled[r][h] = Scaled<kCodes>(products[r][h], stored_scales);
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

// Int8Tile for 1 ≤ rows ≤ kTileRows.
template <Codes kCodes, int kRows = kTileRows>
HWY_INLINE void Int8TileRows(int64_t rows, const int32_t* a, const float* steps, const std::byte* b,
                             size_t groups, float* sums, size_t sums_stride, bool resume,
                             const std::byte* ahead, size_t ahead_bytes) {
  if constexpr (kRows >= 1) {
    if (rows == kRows)
      Int8Tile<kCodes, kRows>(a, steps, b, groups, sums, sums_stride, resume, ahead, ahead_bytes);
    else
      Int8TileRows<kCodes, kRows - 1>(rows, a, steps, b, groups, sums, sums_stride, resume, ahead,
                                      ahead_bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
