// Cache blocking of the matrix product around the register tile.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/bfloat16.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kCols = static_cast<int64_t>(kPanelCols);

// Rows of a panel at a time: 16 KiB, half of the first-level cache, the rest is for the tile's rows
// of A.
template <class B>
constexpr int64_t kDepth = 16384 / (kCols * static_cast<int64_t>(sizeof(B)));

void PackF32(const float* rows, int64_t k, void* panel) {
  auto* out = static_cast<float*>(panel);
  for (int64_t i = 0; i < k; ++i)
    for (int64_t c = 0; c < kCols; ++c) *out++ = rows[c * k + i];
}

void PackBf16(const float* rows, int64_t k, void* panel) {
  auto* out = static_cast<uint16_t*>(panel);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < kCols / 2; ++c) {
      *out++ = ToBfloat16(rows[c * k + i]);
      *out++ = ToBfloat16(rows[(c + kCols / 2) * k + i]);
    }
  }
}

// Finished sums [rows][kBlockCols] to the output columns [first_col, end_col).
void Finish(const PanelProduct& p, const float* sums, int64_t first_row, int64_t rows,
            int64_t first_col, int64_t end_col) {
  const DF d;
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = sums + r * kBlockCols;
    float* out = p.out + (first_row + r) * p.out_stride + first_col;
    const float* bias = p.bias ? p.bias + first_col : nullptr;
    const int64_t count = end_col - first_col;
    int64_t c = 0;
    for (; c + kStep <= count; c += kStep) {
      VF value = hn::Load(d, from + c);
      if (bias) value = hn::Add(value, hn::LoadU(d, bias + c));
      if (p.add) value = hn::Add(hn::LoadU(d, out + c), value);
      hn::StoreU(value, d, out + c);
    }
    for (; c < count; ++c) {
      const float value = bias ? from[c] + bias[c] : from[c];
      out[c] = p.add ? out[c] + value : value;
    }
  }
}

// Few rows: memory-bound. kPanels panels at a time give enough independent chains and streams, and
// no cut of k is needed.
template <int kRows, int kPanels, class B>
void MultiplyFew(const PanelProduct& p) {
  const B* panels = static_cast<const B*>(p.panels);
  const auto k = static_cast<size_t>(p.k);
  for (int64_t panel = p.first_panel; panel < p.end_panel;) {
    const B* b = panels + panel * p.k * kCols;
    const int64_t now = p.end_panel - panel >= kPanels ? kPanels : 1;
    if (now == kPanels)
      Tile<kRows, kPanels>(p.a, static_cast<size_t>(p.a_stride), b, k * kPanelCols, k, p.scratch,
                           kBlockCols, false, b);
    else
      Tile<kRows, 1>(p.a, static_cast<size_t>(p.a_stride), b, 0, k, p.scratch, kBlockCols, false,
                     b);
    Finish(p, p.scratch, 0, kRows, panel * kCols, std::min(p.cols, (panel + now) * kCols));
    panel += now;
  }
}

// A block of rows against a group of panels whose sums fit the scratch.
template <class B>
void MultiplyBlock(const PanelProduct& p, int64_t first_row, int64_t rows, int64_t first_panel,
                   int64_t end_panel) {
  const B* panels = static_cast<const B*>(p.panels);
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t k = 0; k < p.k; k += kDepth<B>) {
    const int64_t depth = std::min(kDepth<B>, p.k - k);
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      const B* b = panels + (panel * p.k + k) * kCols;
      // What follows in this order: the next panel's piece, else the next pieces of the group, else
      // the next group.
      const B* next = panel + 1 < end_panel ? b + p.k * kCols
                      : k + depth < p.k     ? panels + (first_panel * p.k + k + depth) * kCols
                                            : panels + end_panel * p.k * kCols;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t at = rows * t / tiles, end = rows * (t + 1) / tiles;  // even heights
        TileRows(static_cast<size_t>(end - at), p.a + (first_row + at) * p.a_stride + k,
                 static_cast<size_t>(p.a_stride), b, static_cast<size_t>(depth),
                 p.scratch + at * kBlockCols + (panel - first_panel) * kCols, kBlockCols, k > 0,
                 t == 0 ? next : b);
      }
    }
  }
  Finish(p, p.scratch, first_row, rows, first_panel * kCols, std::min(p.cols, end_panel * kCols));
}

template <class B>
void Multiply(const PanelProduct& p) {
  if (p.rows == 1) return MultiplyFew<1, 4, B>(p);
  if (p.rows == 2) return MultiplyFew<2, 2, B>(p);
  if (p.rows == 3) return MultiplyFew<3, 2, B>(p);
  constexpr int64_t kGroup = kBlockCols / kCols;
  const int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = p.rows * i / blocks, end = p.rows * (i + 1) / blocks;
    for (int64_t panel = p.first_panel; panel < p.end_panel; panel += kGroup)
      MultiplyBlock<B>(p, first, end - first, panel, std::min(panel + kGroup, p.end_panel));
  }
}

const MatMulKernels* Kernels() {
  static constexpr MatMulKernels kKernels = {kCols, PackF32, PackBf16, Multiply<float>,
                                             Multiply<uint16_t>};
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
const MatMulKernels& GetMatMulKernels(int64_t targets) {
  return *PickTarget(HWY_DISPATCH_TABLE(Kernels), targets)();
}
}  // namespace sysone
#endif  // HWY_ONCE
