// Operations on single rows: norms, rotation, gate, conversions, dot products.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {
namespace {

struct Pair {
  VF a, b;
};

// Calls step(i, count) for every vector of an array of n floats.
template <class Step>
HWY_INLINE void ForVectors(int64_t n, const Step& step) {
  const auto size = static_cast<size_t>(n);
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) step(i, kLanes);
  if (i < size) step(i, size - i);
}

// 1 / sqrt(mean(x²) + eps)
HWY_INLINE VF NormScale(const float* x, int64_t n, float eps) {
  const float squares = SumProducts(static_cast<size_t>(n), [x](size_t i, size_t count) HWY_ATTR {
    const VF v = LoadUpTo(x + i, count);
    return Pair{v, v};
  });
  return hn::Set(DF(), 1.0f / std::sqrt(squares / static_cast<float>(n) + eps));
}

void RmsNorm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  const VF scale = NormScale(x, n, eps);
  ForVectors(n, [=](size_t i, size_t count) HWY_ATTR {
    const VF scaled = hn::Mul(LoadUpTo(x + i, count), scale);
    StoreUpTo(hn::Mul(scaled, LoadUpTo(weight + i, count)), out + i, count);
  });
}

template <bool kNorm>
HWY_INLINE void NormRotateHead(float* x, const float* weight, float eps, const float* cos,
                               const float* sin, int64_t half) {
  VF scale = hn::Zero(DF());
  if constexpr (kNorm) scale = NormScale(x, 2 * half, eps);
  ForVectors(half, [=](size_t i, size_t count) HWY_ATTR {
    VF a = LoadUpTo(x + i, count), b = LoadUpTo(x + half + i, count);
    if constexpr (kNorm) {
      a = hn::Mul(hn::Mul(a, scale), LoadUpTo(weight + i, count));
      b = hn::Mul(hn::Mul(b, scale), LoadUpTo(weight + half + i, count));
    }
    const VF c = LoadUpTo(cos + i, count), s = LoadUpTo(sin + i, count);
    StoreUpTo(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), x + i, count);
    StoreUpTo(hn::Add(hn::Mul(a, s), hn::Mul(b, c)), x + half + i, count);
  });
}

void NormRotate(float* x, int64_t heads, const float* weight, float eps, const float* cos,
                const float* sin, int64_t half) {
  for (int64_t h = 0; h < heads; ++h, x += 2 * half) {
    if (weight)
      NormRotateHead<true>(x, weight, eps, cos, sin, half);
    else
      NormRotateHead<false>(x, weight, eps, cos, sin, half);
  }
}

void GatedSilu(const float* gate, const float* up, int64_t n, float* out) {
  const VF one = hn::Set(DF(), 1.0f);
  ForVectors(n, [=](size_t i, size_t count) HWY_ATTR {
    const VF g = LoadUpTo(gate + i, count);
    const VF silu = hn::Div(g, hn::Add(one, Exp(hn::Neg(g))));
    StoreUpTo(hn::Mul(silu, LoadUpTo(up + i, count)), out + i, count);
  });
}

HWY_INLINE VF WidenUpTo(const uint16_t* from, size_t count) {
  const DF d;
  const DU du;
  const hn::Rebind<uint16_t, DF> dh;
  HWY_ALIGN uint16_t part[kLanes] = {};
  if (count < kLanes) {
    for (size_t i = 0; i < count; ++i) part[i] = from[i];
    from = part;
  }
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, from))));
}

void Widen(const uint16_t* bf16, int64_t n, float* out) {
  ForVectors(n, [=](size_t i, size_t count)
                    HWY_ATTR { StoreUpTo(WidenUpTo(bf16 + i, count), out + i, count); });
}

// Simple enough for the compiler to turn into vectors.
void Narrow(const float* x, int64_t n, uint16_t* bf16) {
  for (int64_t i = 0; i < n; ++i) bf16[i] = ToBfloat16(x[i]);
}

float DotF32(const float* x, const float* w, int64_t n) {
  return SumProducts(static_cast<size_t>(n), [=](size_t i, size_t count) HWY_ATTR {
    return Pair{LoadUpTo(x + i, count), LoadUpTo(w + i, count)};
  });
}

float DotBf16(const float* x, const uint16_t* w, int64_t n) {
  return SumProducts(static_cast<size_t>(n), [=](size_t i, size_t count) HWY_ATTR {
    return Pair{LoadUpTo(x + i, count), WidenUpTo(w + i, count)};
  });
}

float SumExp(const float* x, int64_t n, float largest) {
  const VF one = hn::Set(DF(), 1.0f), shift = hn::Set(DF(), largest);
  return SumProducts(static_cast<size_t>(n), [=](size_t i, size_t count) HWY_ATTR {
    const VF e = Exp(hn::Sub(LoadUpTo(x + i, count), shift));
    return Pair{e, hn::IfThenElseZero(hn::FirstN(DF(), count), one)};
  });
}

const RowKernels* Kernels() {
  static constexpr RowKernels kKernels = {RmsNorm, NormRotate, GatedSilu, Widen,
                                          Narrow,  DotF32,     DotBf16,   SumExp};
  return &kKernels;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/dispatch.h"

namespace sysone {
namespace {
HWY_EXPORT(Kernels);
}  // namespace
const RowKernels& GetRowKernels(int64_t targets) {
  return *PickTarget(HWY_DISPATCH_TABLE(Kernels), targets)();
}
}  // namespace sysone
#endif  // HWY_ONCE
