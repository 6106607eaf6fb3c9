// Cache blocking of the int8 products around their register tile, and what turns their integer sums
// into floats.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/int8_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/int8_tile-inl.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kCols = static_cast<int64_t>(kPanelCols);
// Depth of a panel at a time, whole groups: with the rows of a tile two thirds of a first-level cache
// of 32 KiB.
constexpr int64_t kMaxDepth =
    12288 / kCols < kInt8Group ? kInt8Group : 12288 / kCols / kInt8Group * kInt8Group;

void Pack(const int8_t* rows, int64_t k, int64_t padded_k, int8_t* panel) {
  for (int64_t i = 0; i < padded_k; i += 2) {
    for (int64_t c = 0; c < kCols; ++c) {
      *panel++ = i < k ? rows[c * k + i] : int8_t{0};
      *panel++ = i + 1 < k ? rows[c * k + i + 1] : int8_t{0};
    }
  }
}

// Sums [rows][kBlockCols] to the output columns [first_col, end_col).
void Finish(const Int8Product& p, int64_t first_row, int64_t rows, int64_t first_col,
            int64_t end_col) {
  const DF d;
  const size_t count = static_cast<size_t>(end_col - first_col);
  for (int64_t r = 0; r < rows; ++r) {
    const float* const sums = p.sums + r * kBlockCols;
    const VF step = hn::Set(d, p.steps[first_row + r]);
    float* const out = p.out + (first_row + r) * p.out_stride + first_col;
    const float* const term = p.add ? out : p.bias ? p.bias + first_col : nullptr;
    for (size_t c = 0; c < count; c += kLanes) {
      const size_t part = std::min(kLanes, count - c);
      const VF sum = hn::Load(d, sums + c);
      StoreUpTo(term ? hn::MulAdd(sum, step, LoadUpTo(term + c, part)) : hn::Mul(sum, step),
                out + c, part);
    }
  }
}

// A block of rows, beginning with a whole tile, against a group of panels whose sums fit the
// scratch.
void MultiplyBlock(const Int8Product& p, int64_t first_row, int64_t rows, int64_t first_panel,
                   int64_t end_panel) {
  const int64_t full_depth = rows <= kTileRows ? p.k : kMaxDepth;
  const int64_t groups = (p.k + kInt8Group - 1) / kInt8Group;
  for (int64_t k = 0; k < p.k; k += full_depth) {
    const int64_t depth = std::min(full_depth, p.k - k);
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      const int8_t* const b = p.panels + (panel * p.k + k) * kCols;
      const float* const scales = p.scales + (panel * groups + k / kInt8Group) * 2 * kCols;
      // What follows in this order: the next panel's piece, else the next pieces of the group, else
      // the next group.
      const int8_t* const next = panel + 1 < end_panel ? b + p.k * kCols
                                 : k + depth < p.k
                                     ? p.panels + (first_panel * p.k + k + depth) * kCols
                                     : p.panels + end_panel * p.k * kCols;
      for (int64_t at = 0; at < rows; at += kTileRows) {
        Int8TileRows(
            std::min<int64_t>(kTileRows, rows - at), p.a + (first_row + at) * p.k + k * kTileRows,
            p.group_sums + (first_row + at) * groups + k / kInt8Group * kTileRows, b, scales,
            static_cast<size_t>(depth), p.sums + at * kBlockCols + (panel - first_panel) * kCols,
            kBlockCols, k > 0, at == 0 ? next : b);
      }
    }
  }
  Finish(p, first_row, rows, first_panel * kCols, std::min(p.cols, end_panel * kCols));
}

void Multiply(const Int8Product& p) {
  constexpr int64_t kGroup = kBlockCols / kCols;
  const int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
  const int64_t rows = (p.rows + kTileRows * blocks - 1) / (kTileRows * blocks) * kTileRows;
  for (int64_t first = 0; first < p.rows; first += rows) {
    for (int64_t panel = p.first_panel; panel < p.end_panel; panel += kGroup)
      MultiplyBlock(p, first, std::min(rows, p.rows - first), panel,
                    std::min(panel + kGroup, p.end_panel));
  }
}

// The row's part of its tile: [k / 2][kTileRows][2 of k], and the sums of its groups.
void Encode(const float* x, int64_t n, float factor, int16_t* out, float* group_sums) {
  const DI di;
  const VF scale = hn::Set(DF(), factor);
  const auto any = hn::Ne(scale, hn::Zero(DF()));  // otherwise x may be anything, even NaN
  const hn::Rebind<int16_t, DF> d16;
  const auto size = static_cast<size_t>(n);
  HWY_ALIGN int16_t q[kLanes < 8 ? 8 : kLanes];
  for (size_t i = 0; i < size; group_sums += kTileRows) {
    auto sum = hn::Zero(di);
    for (const size_t end = std::min(size, i + kInt8Group); i < end; i += kLanes) {
      const size_t count = std::min(kLanes, end - i);
      const VF scaled = hn::Mul(hn::IfThenElseZero(any, LoadUpTo(x + i, count)), scale);
      const auto rounded = hn::NearestInt(scaled);
      sum = hn::Add(sum, rounded);
      hn::Store(hn::DemoteTo(d16, rounded), d16, q);
      int16_t* const to = out + i / 2 * 2 * kTileRows + i % 2;
      size_t j = 0;
      for (; j + 2 <= count; j += 2) std::memcpy(to + j * kTileRows, q + j, 2 * sizeof(int16_t));
      if (j < count) to[j * kTileRows] = q[j];
    }
    *group_sums = static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
  }
}

const Int8Kernels* Kernels() {
  static constexpr Int8Kernels kKernels = {kCols, kTileRows, Encode, Pack, Multiply};
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
const Int8Kernels& GetInt8Kernels(int64_t targets) {
  return *PickTarget(HWY_DISPATCH_TABLE(Kernels), targets)();
}
}  // namespace sysone
#endif  // HWY_ONCE
