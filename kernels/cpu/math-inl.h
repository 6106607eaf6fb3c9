// exp on vectors, and loops over arrays of any length. Included once a Highway target: see
// foreach_target.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SYSONE_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SYSONE_KERNELS_CPU_MATH_INL_H_
#undef SYSONE_KERNELS_CPU_MATH_INL_H_
#else
#define SYSONE_KERNELS_CPU_MATH_INL_H_
#endif

#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {

// e^x for x in [-87.3, 88.3]; outside, the value at the nearer end (1.2e-38 or 2.2e38), also for
// infinities.
//
// x = n·ln 2 + r with integer n, |r| ≤ 0.3467. n·kLn2High is exact (15 and at most 8 bits), so is
// the difference; r carries the rounding of one or two operations on values ≤ 0.35, at most 2^-25.
// The Taylor polynomial of degree 7 leaves r^8/8!·e^r < 2^-27. Horner's last step rounds once at
// the result's size (2^-24), the earlier ones are damped by |r| each and sum to less than 2^-24,
// doubled where multiply-add rounds twice. 2^n is exact. Altogether below 2^-22 relative.
HWY_INLINE VF Exp(VF x) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f, kLog2E = 0x1.715476p0f;
  x = hn::Min(hn::Max(x, hn::Set(d, -87.3f)), hn::Set(d, 88.3f));
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, kLog2E)));
  const VF nf = hn::ConvertTo(d, n);
  VF r = hn::NegMulAdd(nf, hn::Set(d, kLn2High), x);
  r = hn::NegMulAdd(nf, hn::Set(d, kLn2Low), r);
  VF y = hn::Set(d, 1.0f / 5040);
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 720));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 120));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 24));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f / 6));
  y = hn::MulAdd(y, r, hn::Set(d, 0.5f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127)));
  return hn::Mul(y, hn::BitCast(d, exponent));
}

// The first `count` < kLanes floats at `from`, the rest zero. Never reads past them.
HWY_INLINE VF LoadPart(const float* from, size_t count) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(DF(), lanes);
}
HWY_INLINE void StorePart(VF value, float* to, size_t count) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(value, DF(), lanes);
  for (size_t i = 0; i < count; ++i) to[i] = lanes[i];
}

// Σ of the products of n pairs, in an order that hangs on n alone: four interleaved vectors, then a
// tree. get(i, count) gives the pair of vectors at i, of which `count` lanes are valid and the
// others zero.
template <class Get>
HWY_INLINE float SumProducts(size_t n, const Get& get) {
  const DF d;
  VF sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) {
      const auto [a, b] = get(i + j * kLanes, kLanes);
      sums[j] = hn::MulAdd(a, b, sums[j]);
    }
  }
  for (size_t j = 0; i < n; i += kLanes, ++j) {
    const auto [a, b] = get(i, n - i < kLanes ? n - i : kLanes);
    sums[j] = hn::MulAdd(a, b, sums[j]);
  }
  const VF sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The first `count` lanes, at most kLanes; a whole vector goes the short way.
HWY_INLINE VF LoadUpTo(const float* from, size_t count) {
  return count == kLanes ? hn::LoadU(DF(), from) : LoadPart(from, count);
}
HWY_INLINE void StoreUpTo(VF value, float* to, size_t count) {
  if (count == kLanes) return hn::StoreU(value, DF(), to);
  StorePart(value, to, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace sysone
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
