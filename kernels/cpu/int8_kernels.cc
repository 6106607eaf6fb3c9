// Cache blocking of the int8 products around their register tile, how weights are packed for it, and how activations are
// encoded.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/cpu/buffer.h"
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
// Groups of a panel at a time: with the rows of a tile two thirds of a first-level cache of 32 KiB.
constexpr int64_t MaxGroups(bool words) {
  return HWY_MIN(kUnpackedGroups, 12288 / static_cast<int64_t>(kCodeBytes)) / (words ? 2 : 1);
}
static_assert(MaxGroups(true) * ReadyBytes(Codes::kWords) <=
              MaxGroups(false) * ReadyBytes(Codes::kBytes));
// As long as the sums stay in that cache, too, the half of it: two threads may share a core.
constexpr int64_t kFewRows = 64;

template <Codes kCodes>
void Pack(const uint8_t* codes, int64_t stride, const Int8Scale* scales, std::byte* group) {
  auto* const floats = reinterpret_cast<float*>(group);
  auto* to = reinterpret_cast<uint8_t*>(group + kScaleBytes);
  for (int64_t c = 0; c < kCols; ++c) {
    StoreScale<kCodes>(static_cast<int16_t>(scales[c].scale), floats + c);
    floats[kCols + c] = scales[c].low;
  }
  constexpr bool kHalfBytes = kCodes == Codes::kHalfBytes;
  constexpr int64_t kNeighbours = kCodes == Codes::kWords ? 2 : 4;
  for (int64_t k = 0; k < kInt8Group; k += kHalfBytes ? 8 : kNeighbours) {
    for (int64_t c = 0; c < kCols; ++c) {
      for (int64_t i = 0; i < kNeighbours; ++i) {
        const uint8_t* const from = codes + c * stride + k + i;
        *to++ = static_cast<uint8_t>(kHalfBytes ? from[0] | from[4] << 4 : from[0]);
      }
    }
  }
}

// Groups with half bytes to groups with bytes.
void UnpackHalfBytes(const std::byte* HWY_RESTRICT halves, int64_t groups,
                     std::byte* HWY_RESTRICT bytes) {
  constexpr size_t kRow = 4 * kPanelCols;
  for (; groups > 0; --groups) {
    std::memcpy(bytes, halves, kScaleBytes);
    bytes += kScaleBytes;
    halves += kScaleBytes;
    for (size_t i = 0; i < kCodeBytes; i += 2 * kRow) {
      for (size_t j = 0; j < kRow; ++j) {
        bytes[j] = halves[j] & std::byte{0x0F};
        bytes[kRow + j] = halves[j] >> 4;
      }
      bytes += 2 * kRow;
      halves += kRow;
    }
  }
}

// Groups with bytes to groups with words.
void UnpackWords(const std::byte* HWY_RESTRICT bytes, int64_t groups,
                 std::byte* HWY_RESTRICT words) {
  for (; groups > 0; --groups) {
    std::memcpy(words, bytes, kScaleBytes);
    const auto* const from = reinterpret_cast<const uint8_t*>(bytes + kScaleBytes);
    auto* const to = reinterpret_cast<uint16_t*>(words + kScaleBytes);
    for (size_t i = 0; i < kCodeBytes; ++i) to[i] = from[i];
    bytes += kScaleBytes + kCodeBytes;
    words += ReadyBytes(Codes::kWords);
  }
}

constexpr size_t GroupBytes(Codes codes) {
  return kScaleBytes + (codes == Codes::kHalfBytes ? kCodeBytes / 2 : kCodeBytes);
}

// The part of a panel that begins with a group, and how many bytes a group has.
struct PanelPart {
  const std::byte* groups;
  size_t group_bytes;
};
PanelPart PartAt(const Int8Panel& panel, int64_t group) {
  const size_t bytes = GroupBytes(panel.codes);
  return {panel.groups + static_cast<size_t>(group) * bytes, bytes};
}

// The peaks of a block of rows times their weights in one panel, to its sums.
template <Codes kCodes>
void AddPeaks(const Int8Product& p, int64_t first_row, int64_t rows, const std::byte* panel,
              float* sums) {
  constexpr bool kHalfBytes = kCodes == Codes::kHalfBytes;
  const DF d;
  const hn::RebindToUnsigned<DI> du;
  const auto mask = hn::Set(du, kHalfBytes ? 0x0F : 0xFF);
  for (int64_t r = first_row; r < first_row + rows; ++r, sums += kBlockCols) {
    if (p.peak_counts[r] == 0) continue;
    const std::span<const Peak> peaks(p.peaks + r * p.peak_stride,
                                      static_cast<size_t>(p.peak_counts[r]));
    VF low_sum = hn::Load(d, sums), high_sum = hn::Load(d, sums + kLanes);
    for (const Peak& peak : peaks) {
      const auto k = static_cast<size_t>(peak.k);
      const std::byte* const group = panel + k / kInt8Group * GroupBytes(kCodes);
      const auto* const scales = reinterpret_cast<const float*>(group);
      const size_t quad = k % kInt8Group / 4;
      const auto* const codes = reinterpret_cast<const uint8_t*>(group + kScaleBytes) +
                                (kHalfBytes ? quad / 2 : quad) * 4 * kPanelCols;
      const int shift = static_cast<int>(k % 4 * 8 + (kHalfBytes ? quad % 2 * 4 : 0));
      const VF value = hn::Set(d, peak.value);
      const auto add = [&](size_t h, VF& sum) HWY_ATTR {
        const auto four = hn::BitCast(du, LoadCodes(codes + 4 * h * kLanes));
        const auto code = hn::And(hn::ShiftRightSame(four, shift), mask);
        const VF weight = hn::MulAdd(hn::ConvertTo(d, hn::BitCast(DI(), code)),
                                     Scales<kCodes>(scales + h * kLanes),
                                     hn::Load(d, scales + kPanelCols + h * kLanes));
        sum = hn::MulAdd(weight, value, sum);
      };
      add(0, low_sum);
      add(1, high_sum);
    }
    hn::Store(low_sum, d, sums);
    hn::Store(high_sum, d, sums + kLanes);
  }
}

// Sums [rows][kBlockCols] times the columns' units to the output columns [first_col, end_col).
void Finish(const Int8Product& p, int64_t first_row, int64_t rows, int64_t first_col,
            int64_t end_col) {
  const DF d;
  const size_t count = static_cast<size_t>(end_col - first_col);
  for (int64_t r = 0; r < rows; ++r) {
    const float* const sums = p.sums + r * kBlockCols;
    const float* const units = p.units + first_col;
    float* const out = p.out + (first_row + r) * p.out_stride + first_col;
    const float* const term = p.add ? out : p.bias ? p.bias + first_col : nullptr;
    for (size_t c = 0; c < count; c += kLanes) {
      const size_t part = std::min(kLanes, count - c);
      const VF sum = hn::Mul(hn::Load(d, sums + c), hn::Load(d, units + c));
      StoreUpTo(term ? hn::Add(sum, LoadUpTo(term + c, part)) : sum, out + c, part);
    }
  }
}

// A part of one panel, `groups` from `group` on, against a block of rows. The first tile reads `next` ahead of its use.
void MultiplyPart(const Int8Product& p, int64_t first_row, int64_t rows, int64_t panel,
                  int64_t group, int64_t groups, PanelPart next, float* sums) {
  const Codes codes = p.panels[panel].codes;
  const std::byte* b = PartAt(p.panels[panel], group).groups;
  auto* tile = &Int8TileRows<Codes::kBytes>;
  if (codes != Codes::kBytes) {
    const bool words = codes == Codes::kWords;
    (words ? UnpackWords : UnpackHalfBytes)(b, groups, p.unpacked);
    b = p.unpacked;
    tile = words ? &Int8TileRows<Codes::kWords> : &Int8TileRows<Codes::kHalfBytes>;
  }
  const int64_t lanes = LanesOfGroup(p.words);
  for (int64_t at = 0; at < rows; at += kTileRows) {
    const int64_t row = first_row + at;
    const int64_t from = row * p.groups + group * kTileRows;  // in groups
    tile(std::min<int64_t>(kTileRows, rows - at), p.a + from * lanes, p.steps + 2 * from, b,
         static_cast<size_t>(groups), sums + at * kBlockCols, kBlockCols, group > 0, next.groups,
         at == 0 ? next.group_bytes : 0);
  }
}

// A block of rows, beginning with a whole tile, against panels whose sums fit the scratch.
void MultiplyBlock(const Int8Product& p, int64_t first_row, int64_t rows, int64_t first_panel,
                   int64_t end_panel) {
  const int64_t all_groups = p.groups;
  const int64_t most = MaxGroups(p.words) / (rows <= kFewRows ? 2 : 1);
  const int64_t groups = DivideUp(all_groups, DivideUp(all_groups, most));
  for (int64_t group = 0; group < all_groups; group += groups) {
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      // What follows in this order: the next panel's part, else the next parts, else the next panels.
      const PanelPart next = panel + 1 < end_panel ? PartAt(p.panels[panel + 1], group)
                             : group + groups < all_groups
                                 ? PartAt(p.panels[first_panel], group + groups)
                                 : PartAt(p.panels[std::min(end_panel, p.end_panel - 1)], 0);
      MultiplyPart(p, first_row, rows, panel, group, std::min(groups, all_groups - group), next,
                   p.sums + (panel - first_panel) * kCols);
    }
  }
  for (int64_t panel = first_panel; panel < end_panel && !p.words; ++panel) {
    const auto add_peaks = p.panels[panel].codes == Codes::kHalfBytes ? AddPeaks<Codes::kHalfBytes>
                                                                      : AddPeaks<Codes::kBytes>;
    add_peaks(p, first_row, rows, p.panels[panel].groups, p.sums + (panel - first_panel) * kCols);
  }
  Finish(p, first_row, rows, first_panel * kCols, std::min(p.cols, end_panel * kCols));
}

void Multiply(const Int8Product& p) {
  // A single tile has no other that reads a part of a panel again, so it takes whole panels as they come from memory. Otherwise
  // the more panels together, the more often a part of the rows is read from the second-level cache.
  const int64_t panels = p.end_panel - p.first_panel;
  const int64_t together =
      p.rows <= kTileRows ? 1 : DivideUp(panels, DivideUp(panels, kBlockCols / kCols));
  const int64_t rows = RoundUp(DivideUp(p.rows, DivideUp(p.rows, kBlockRows)), kTileRows);
  for (int64_t first = 0; first < p.rows; first += rows) {
    for (int64_t panel = p.first_panel; panel < p.end_panel; panel += together)
      MultiplyBlock(p, first, std::min(rows, p.rows - first), panel,
                    std::min(panel + together, p.end_panel));
  }
}

// max |x| of a group; infinite or NaN if any x is: the bits without the sign are ordered like the numbers, then infinity,
// then NaN.
float Largest(const float* x) {
  const DI di;
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  VI largest = hn::Zero(di);
  for (size_t i = 0; i < kInt8Group; i += kLanes)
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(DF(), x + i)), magnitude));
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, largest)));
}

// The mean of |x|, in an order that hangs on n alone. NaN if any is.
float MeanMagnitude(const float* x, int64_t n) {
  const VF one = hn::Set(DF(), 1.0f);
  const float sum = SumProducts(static_cast<size_t>(n), [=](size_t i, size_t count) HWY_ATTR {
    struct {
      VF a, b;
    } pair = {hn::Abs(LoadUpTo(x + i, count)), one};
    return pair;
  });
  return sum / static_cast<float>(n);
}

// Takes what is above `floor` out of x[kInt8Group], the first column of which is k; the largest kPeaks, if more are. How many.
int32_t TakePeaks(float* x, float floor, int32_t k, Peak* peaks) {
  size_t found[kInt8Group];
  size_t count = 0;
  for (size_t i = 0; i < kInt8Group; ++i)
    if (std::abs(x[i]) > floor) found[count++] = i;
  if (count > kPeaks) {
    std::stable_sort(found, found + count,
                     [x](size_t a, size_t b) { return std::abs(x[a]) > std::abs(x[b]); });
    count = kPeaks;
    std::sort(found, found + count);
  }
  for (size_t i = 0; i < count; ++i)
    peaks[i] = {std::exchange(x[found[i]], 0.0f), k + static_cast<int32_t>(found[i])};
  return static_cast<int32_t>(count);
}

// Codes of x[kInt8Group] to a row of a tile. Their sum.
template <class Code>
float EncodeGroup(const float* x, float inverse, int32_t* row) {
  const DI di;
  const hn::Rebind<Code, DI> narrow;
  alignas(64) Code codes[kInt8Group];
  VI sum = hn::Zero(di);
  for (size_t i = 0; i < kInt8Group; i += kLanes) {
    const VI code = hn::NearestInt(hn::Mul(hn::LoadU(DF(), x + i), hn::Set(DF(), inverse)));
    sum = hn::Add(sum, code);
    hn::StoreU(hn::DemoteTo(narrow, code), narrow, codes + i);
  }
  constexpr size_t kNeighbours = sizeof(*row) / sizeof(Code);
  for (size_t i = 0; i < kInt8Group; i += kNeighbours, row += kTileRows)
    std::memcpy(row, codes + i, sizeof(*row));
  return static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
}

// One group after the other of x[n], the last one filled up with zeros, from column k on.
template <class Work>
void ForGroups(const float* x, int64_t n, const Work& work) {
  float part[kInt8Group];
  for (int64_t k = 0; k < n; k += kInt8Group) {
    const float* from = x + k;
    if (n - k < kInt8Group) {
      std::fill(std::copy(from, x + n, part), part + kInt8Group, 0.0f);
      from = part;
    }
    work(from, k);
  }
}

// One group, the largest |x| of which is `largest`, to a row of a tile.
template <class Code>
void EncodeScaled(const float* x, float largest, int32_t most, int32_t*& row, float*& steps) {
  static constexpr float kZeros[kInt8Group] = {};
  const ActivationScale scale = ScaleOfActivations(largest, most);
  // Without a scale x may be anything, even NaN.
  const float sum = EncodeGroup<Code>(scale.inverse == 0 ? kZeros : x, scale.inverse, row);
  steps[0] = scale.step;
  steps[kTileRows] = scale.step * sum;
  row += LanesOfGroup(sizeof(Code) == 2) * kTileRows;
  steps += 2 * kTileRows;
}

int32_t EncodeBytes(const float* x, int64_t n, int32_t* row, float* steps, Peak* peaks) {
  const float floor = FloorOfPeaks(MeanMagnitude(x, n));
  int32_t count = 0;
  ForGroups(x, n, [&](const float* group, int64_t k) HWY_ATTR {
    float rest[kInt8Group];
    float largest = Largest(group);
    if (largest > floor) {
      std::copy(group, group + kInt8Group, rest);
      group = rest;
      count += TakePeaks(rest, floor, static_cast<int32_t>(k), peaks + count);
      largest = Largest(rest);
    }
    EncodeScaled<int8_t>(group, largest, kCoarseLevels.activation, row, steps);
  });
  return count;
}

void EncodeWords(const float* x, int64_t n, int32_t* row, float* steps) {
  ForGroups(x, n, [&](const float* group, int64_t) HWY_ATTR {
    EncodeScaled<int16_t>(group, Largest(group), kFineLevels.activation, row, steps);
  });
}

const Int8Kernels* Kernels() {
  static constexpr Int8Kernels kKernels = {kCols,
                                           kTileRows,
                                           EncodeBytes,
                                           EncodeWords,
                                           Pack<Codes::kHalfBytes>,
                                           Pack<Codes::kBytes>,
                                           Pack<Codes::kWords>,
                                           Multiply};
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
