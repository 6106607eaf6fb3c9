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
#include "kernels/cpu/int8_pair_tile-inl.h"
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
static_assert(MaxGroups(false) % (2 * GroupsOfUnit(false)) == 0);
// As long as the sums stay in that cache, too, the half of it: two threads may share a core.
constexpr int64_t kFewRows = 64;

// Of a panel, for each group; half of a pair's.
constexpr size_t GroupBytes(Codes codes) {
  const size_t code_bytes = AreHalfBytes(codes) ? kCodeBytes / 2 : kCodeBytes;
  if (kPairs && codes != Codes::kWords) return PairHeader(codes) / 2 + code_bytes;
  return kScaleBytes + code_bytes;
}

// Codes of a unit as they lie in a panel: as many lanes of each column as `at` has places for, which says which of a column's codes
// is byte i of a lane. Half bytes: two lanes in one.
template <class At>
void PackCodes(const uint8_t* codes, int64_t stride, bool half_bytes, int64_t lanes,
               int64_t bytes_of_lane, const At& at, std::byte* to) {
  for (int64_t lane = 0; lane < lanes; lane += half_bytes ? 2 : 1) {
    for (int64_t c = 0; c < kCols; ++c) {
      for (int64_t i = 0; i < bytes_of_lane; ++i) {
        const uint8_t* const column = codes + c * stride;
        const int code = column[at(lane, i)];
        *to++ = static_cast<std::byte>(half_bytes ? code | column[at(lane + 1, i)] << 4 : code);
      }
    }
  }
}

// int8_pair_tile-inl.h.
constexpr int64_t PairCodeAt(int64_t lane, int64_t i) {
  return i / 2 * kInt8Group + 2 * lane + i % 2;
}
template <Codes kCodes>
void PackPair(const uint8_t* codes, int64_t stride, const Int8Scale* scales, std::byte* pair) {
  auto* const pair_scales = reinterpret_cast<int16_t*>(pair);
  auto* const lows = reinterpret_cast<float*>(pair) + kCols;
  for (int64_t i = 0; i < 2 * kCols; ++i) {
    const Int8Scale& group = scales[i];
    pair_scales[i % kCols * 2 + i / kCols] = static_cast<int16_t>(group.scale);
    if (kCodes != Codes::kCentred)
      lows[i] = kCodes == Codes::kBytes ? group.low : group.low + kCentre * group.scale;
  }
  PackCodes(codes, stride, AreHalfBytes(kCodes), kPairLanes, 4, PairCodeAt,
            pair + PairHeader(kCodes));
}

// A group: float scale[cols], low[cols]; uint8_t codes[lanes][cols][neighbours of k], packed half bytes as in a pair.
template <Codes kCodes>
void PackGroups(const uint8_t* codes, int64_t stride, const Int8Scale* scales, std::byte* unit) {
  constexpr bool kWords = kCodes == Codes::kWords;
  constexpr int64_t kNeighbours = kWords ? 2 : 4;
  for (int64_t g = 0; g < GroupsOfUnit(kWords); ++g) {
    auto* const floats = reinterpret_cast<float*>(unit);
    for (int64_t c = 0; c < kCols; ++c) {
      floats[c] = scales[g * kCols + c].scale;
      floats[kCols + c] = scales[g * kCols + c].low;
    }
    PackCodes(
        codes + g * kInt8Group, stride, AreHalfBytes(kCodes), LanesOfGroup(kWords), kNeighbours,
        [](int64_t lane, int64_t i) { return lane * kNeighbours + i; }, unit + kScaleBytes);
    unit += GroupBytes(kCodes);
  }
}

// Parts of a panel, kHeader bytes each before kCodes codes in half bytes, to such with bytes.
template <size_t kHeader, size_t kCodes>
void UnpackHalfBytes(const std::byte* HWY_RESTRICT halves, int64_t parts,
                     std::byte* HWY_RESTRICT bytes) {
  const hn::CappedTag<uint8_t, 64> d;
  constexpr size_t kRow = 4 * kPanelCols, kStep = hn::MaxLanes(hn::CappedTag<uint8_t, 64>());
  const auto mask = hn::Set(d, 0x0F);
  for (; parts > 0; --parts) {
    std::memcpy(bytes, halves, kHeader);
    const auto* from = reinterpret_cast<const uint8_t*>(halves + kHeader);
    auto* to = reinterpret_cast<uint8_t*>(bytes + kHeader);
    for (size_t i = 0; i < kCodes; i += 2 * kRow, from += kRow, to += 2 * kRow) {
      for (size_t j = 0; j < kRow; j += kStep) {
        const auto two = hn::Load(d, from + j);
        hn::Store(hn::And(two, mask), d, to + j);
        hn::Store(hn::And(hn::ShiftRight<4>(two), mask), d, to + kRow + j);
      }
    }
    halves += kHeader + kCodes / 2;
    bytes += kHeader + kCodes;
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

// The part of a panel that begins with a group, and how many bytes a group has.
struct PanelPart {
  const std::byte* groups = nullptr;
  size_t group_bytes = 0;
};
PanelPart PartAt(const Int8Panel& panel, int64_t group) {
  const size_t bytes = GroupBytes(panel.codes);
  return {panel.groups + static_cast<size_t>(group) * bytes, bytes};
}

// The weights of one k in a panel, in units.
template <Codes kCodes>
HWY_INLINE void WeightsAt(const std::byte* panel, size_t k, VF (&weights)[2]) {
  constexpr bool kHalfBytes = AreHalfBytes(kCodes);
  constexpr size_t kUnit = kPairs ? kStepGroup : kInt8Group, kGroups = kUnit / kInt8Group;
  const DF d;
  const DI di;
  const hn::RebindToUnsigned<DI> du;
  const std::byte* const unit = panel + k / kUnit * kGroups * GroupBytes(kCodes);
  const auto* const scales = reinterpret_cast<const float*>(unit);
  const size_t group = k % kUnit / kInt8Group, at = k % kInt8Group;
  const size_t lane = at / (kPairs ? 2 : 4), byte = kPairs ? 2 * group + at % 2 : at % 4;
  const auto* const codes =
      reinterpret_cast<const uint8_t*>(unit + (kPairs ? PairHeader(kCodes) : kScaleBytes) +
                                       (kHalfBytes ? lane / 2 : lane) * 4 * kPanelCols);
  const int shift = static_cast<int>(8 * byte + (kHalfBytes ? lane % 2 * 4 : 0));
  for (size_t h = 0; h < 2; ++h) {
    const auto four = hn::BitCast(du, LoadCodes(codes + 4 * h * kLanes));
    VI code = hn::BitCast(
        di, hn::And(hn::ShiftRightSame(four, shift), hn::Set(du, kHalfBytes ? 0x0F : 0xFF)));
    VF scale = hn::Load(d, scales + h * kLanes);
    if constexpr (kPairs) {
      const VI pair = hn::BitCast(di, scale);
      scale = hn::ConvertTo(d, hn::ShiftRight<16>(group == 0 ? hn::ShiftLeft<16>(pair) : pair));
      if (kHalfBytes) code = hn::Sub(code, hn::Set(di, kCentre));
    }
    const VF value = hn::ConvertTo(d, code);
    if constexpr (kCodes == Codes::kCentred)
      weights[h] = hn::Mul(value, scale);
    else
      weights[h] = hn::MulAdd(
          value, scale, hn::Load(d, scales + ((kPairs ? group : 0) + 1) * kPanelCols + h * kLanes));
  }
}

// The peaks of a block of rows times their weights in one panel, to its sums.
template <Codes kCodes>
void AddPeaks(const Int8Product& p, int64_t first_row, int64_t rows, const std::byte* panel,
              float* sums) {
  const DF d;
  for (int64_t r = first_row; r < first_row + rows; ++r, sums += kBlockCols) {
    if (p.peak_counts[r] == 0) continue;
    const std::span<const Peak> peaks(p.peaks + r * p.peak_stride,
                                      static_cast<size_t>(p.peak_counts[r]));
    VF low_sum = hn::Load(d, sums), high_sum = hn::Load(d, sums + kLanes);
    for (const Peak& peak : peaks) {
      VF weights[2];
      WeightsAt<kCodes>(panel, static_cast<size_t>(peak.k), weights);
      const VF value = hn::Set(d, peak.value);
      low_sum = hn::MulAdd(weights[0], value, low_sum);
      high_sum = hn::MulAdd(weights[1], value, high_sum);
    }
    hn::Store(low_sum, d, sums);
    hn::Store(high_sum, d, sums + kLanes);
  }
}

// A tile of 1 ≤ rows ≤ kTileRows against `groups` of a panel whose codes are unpacked.
template <Codes kCodes, int kRows = kTileRows>
void TileRows(int64_t rows, const int32_t* a, const float* steps, const std::byte* b, size_t groups,
              float* sums, bool resume, PanelPart next) {
  if constexpr (kRows >= 1) {
    if (rows != kRows)
      return TileRows<kCodes, kRows - 1>(rows, a, steps, b, groups, sums, resume, next);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    if constexpr (kCodes != Codes::kWords)
      PairTile<kCodes, kRows>(a, steps, b, groups / 2, sums, kBlockCols, resume, next.groups,
                              2 * next.group_bytes);
    else
#endif
      Int8Tile<kCodes, kRows>(a, steps, b, groups, sums, kBlockCols, resume, next.groups,
                              next.group_bytes);
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
  auto* tile = &TileRows<Codes::kBytes>;
  if (codes == Codes::kWords) {
    UnpackWords(b, groups, p.unpacked);
    tile = &TileRows<Codes::kWords>;
  } else if (AreHalfBytes(codes)) {
    if constexpr (kPairs)
      (codes == Codes::kCentred
           ? UnpackHalfBytes<PairHeader(Codes::kCentred), kPairCodes>
           : UnpackHalfBytes<PairHeader(Codes::kHalfBytes), kPairCodes>)(b, groups / 2, p.unpacked);
    else
      UnpackHalfBytes<kScaleBytes, kCodeBytes>(b, groups, p.unpacked);
    tile = codes == Codes::kCentred ? &TileRows<Codes::kCentred> : &TileRows<Codes::kHalfBytes>;
  }
  if (codes != Codes::kBytes) b = p.unpacked;
  const int64_t lanes = LanesOfGroup(p.words);
  for (int64_t at = 0; at < rows; at += kTileRows) {
    const int64_t row = first_row + at;
    const int64_t from = row * p.groups + group * kTileRows;  // in groups
    tile(std::min<int64_t>(kTileRows, rows - at), p.a + from * lanes, p.steps + 2 * from, b,
         static_cast<size_t>(groups), sums + at * kBlockCols, group > 0,
         at == 0 ? next : PanelPart{});
  }
}

// A block of rows, beginning with a whole tile, against panels whose sums fit the scratch.
void MultiplyBlock(const Int8Product& p, int64_t first_row, int64_t rows, int64_t first_panel,
                   int64_t end_panel) {
  const int64_t all_groups = p.groups;
  const int64_t most = MaxGroups(p.words) / (rows <= kFewRows ? 2 : 1);
  const int64_t groups =
      RoundUp(DivideUp(all_groups, DivideUp(all_groups, most)), GroupsOfUnit(p.words));
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
    const Codes codes = p.panels[panel].codes;
    const auto add_peaks = codes == Codes::kCentred     ? AddPeaks<Codes::kCentred>
                           : codes == Codes::kHalfBytes ? AddPeaks<Codes::kHalfBytes>
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

// max |x| of count values, as bits, which without the sign are ordered like the numbers, then infinity, then NaN.
int32_t LargestBits(const float* x, size_t count) {
  const DI di;
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  VI largest = hn::Zero(di);
  for (size_t i = 0; i < count; i += kLanes)
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(DF(), x + i)), magnitude));
  return hn::GetLane(hn::MaxOfLanes(di, largest));
}
float Largest(const float* x, size_t count) { return std::bit_cast<float>(LargestBits(x, count)); }

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

// Codes of x[kInt8Group]. Their sum.
template <class Code>
int32_t EncodeGroup(const float* x, float inverse, Code* codes) {
  const DI di;
  const hn::Rebind<Code, DI> narrow;
  VI sum = hn::Zero(di);
  for (size_t i = 0; i < kInt8Group; i += kLanes) {
    const VI code = hn::NearestInt(hn::Mul(hn::LoadU(DF(), x + i), hn::Set(DF(), inverse)));
    sum = hn::Add(sum, code);
    hn::StoreU(hn::DemoteTo(narrow, code), narrow, codes + i);
  }
  return hn::GetLane(hn::SumOfLanes(di, sum));
}

// Parts of x[n] of kPart values each, the last one filled up with zeros, from column k on.
template <int64_t kPart, class Work>
void ForParts(const float* x, int64_t n, const Work& work) {
  float part[kPart];
  for (int64_t k = 0; k < n; k += kPart) {
    const float* from = x + k;
    if (n - k < kPart) {
      std::fill(std::copy(from, x + n, part), part + kPart, 0.0f);
      from = part;
    }
    work(from, k);
  }
}

// Codes of neighbours to a row of a tile.
template <class Code>
void StoreRow(const Code* codes, int32_t*& row) {
  constexpr size_t kNeighbours = sizeof(*row) / sizeof(Code);
  for (size_t i = 0; i < kInt8Group; i += kNeighbours, row += kTileRows)
    std::memcpy(row, codes + i, sizeof(*row));
}

// A unit without peaks to a row of a tile.
void EncodeUnit(const float* x, float largest, int32_t*& row, float*& steps) {
  static constexpr float kZeros[kStepGroup] = {};
  const ActivationScale scale = ScaleOfActivations(largest, kCoarseLevels.activation);
  if (scale.inverse == 0) x = kZeros;  // it may be anything, even NaN
  alignas(64) int8_t codes[2][kInt8Group];
  int32_t sums[2];
  for (int g = 0; g < 2; ++g) sums[g] = EncodeGroup(x + g * kInt8Group, scale.inverse, codes[g]);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  StorePair(codes[0], codes[1], row);
  row += kPairLanes * kTileRows;
  const int16_t start[2] = {static_cast<int16_t>(-kCentre * sums[0]),
                            static_cast<int16_t>(-kCentre * sums[1])};
  steps[0] = scale.step;
  std::memcpy(steps + kTileRows, start, sizeof(start));
  for (int g = 0; g < 2; ++g) steps[(2 + g) * kTileRows] = scale.step * static_cast<float>(sums[g]);
  steps += 4 * kTileRows;
#else
  for (int g = 0; g < 2; ++g, steps += 2 * kTileRows) {
    StoreRow(codes[g], row);
    steps[0] = scale.step;
    steps[kTileRows] = scale.step * static_cast<float>(sums[g]);
  }
#endif
}

int32_t EncodeBytes(const float* x, int64_t n, int32_t* row, float* steps, Peak* peaks) {
  const float floor = FloorOfPeaks(MeanMagnitude(x, n));
  int32_t count = 0;
  ForParts<kStepGroup>(x, n, [&](const float* unit, int64_t k) HWY_ATTR {
    float rest[kStepGroup];
    float largest = Largest(unit, kStepGroup);
    if (largest > floor) {
      std::copy(unit, unit + kStepGroup, rest);
      unit = rest;
      for (int64_t g = 0; g < kStepGroup; g += kInt8Group)
        count += TakePeaks(rest + g, floor, static_cast<int32_t>(k + g), peaks + count);
      largest = Largest(rest, kStepGroup);
    }
    EncodeUnit(unit, largest, row, steps);
  });
  return count;
}

void EncodeWords(const float* x, int64_t n, int32_t* row, float* steps) {
  ForParts<kInt8Group>(x, n, [&](const float* group, int64_t) HWY_ATTR {
    static constexpr float kZeros[kInt8Group] = {};
    const ActivationScale scale =
        ScaleOfActivations(Largest(group, kInt8Group), kFineLevels.activation);
    alignas(64) int16_t codes[kInt8Group];
    const int32_t sum = EncodeGroup(scale.inverse == 0 ? kZeros : group, scale.inverse, codes);
    StoreRow(codes, row);
    steps[0] = scale.step;
    steps[kTileRows] = scale.step * static_cast<float>(sum);
    steps += 2 * kTileRows;
  });
}

constexpr int64_t GroupBytesOf(Codes codes) { return static_cast<int64_t>(GroupBytes(codes)); }

const Int8Kernels* Kernels() {
  static constexpr Int8Kernels kKernels = {
      kCols,
      kTileRows,
      {kPairs ? GroupBytesOf(Codes::kCentred) : 0, GroupBytesOf(Codes::kHalfBytes),
       GroupBytesOf(Codes::kBytes), GroupBytesOf(Codes::kWords)},
      EncodeBytes,
      EncodeWords,
      {kPairs ? PackPair<Codes::kCentred> : nullptr,
       kPairs ? PackPair<Codes::kHalfBytes> : PackGroups<Codes::kHalfBytes>,
       kPairs ? PackPair<Codes::kBytes> : PackGroups<Codes::kBytes>, PackGroups<Codes::kWords>},
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
