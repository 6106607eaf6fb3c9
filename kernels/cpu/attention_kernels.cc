// Causal attention of one tile of query rows over blocks of keys, with a running softmax.
//
// Blocks start at multiples of kKeyBlock in the sequence, keys are taken in order of position, and
// a query never touches a key or value that it does not see. So its result hangs on its own
// sequence alone, however the sequence is cut into runs, spans and tiles, and wherever in the store
// its rows lie.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_kernels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sysone {
namespace HWY_NAMESPACE {
namespace {

constexpr auto kBlock = static_cast<size_t>(kKeyBlock);
static_assert(kBlock % kPanelCols == 0);

// Store row of each position, in order.
class PositionReader {
 public:
  explicit PositionReader(const KvSpan* spans) : span_(spans) {}
  int64_t Next() {
    while (used_ == span_->count) {
      ++span_;
      used_ = 0;
    }
    return span_->first_row + used_++;
  }

 private:
  const KvSpan* span_;
  int32_t used_ = 0;
};

// The scratch of a tile, cut up, and sizes as size_t.
struct Work {
  explicit Work(const AttentionTile& t)
      : dim(static_cast<size_t>(t.head_dim)),
        wide_dim((dim + kPanelCols - 1) / kPanelCols * kPanelCols),
        group(static_cast<size_t>(t.group)),
        queries(group * static_cast<size_t>(t.rows)) {
    constexpr auto kQueries = static_cast<size_t>(kMaxQueries),
                   kDim = static_cast<size_t>(kMaxHeadDim);
    float* at = t.scratch;
    const auto take = [&at](size_t count) {
      float* const part = at;
      at += count;
      return part;
    };
    q = take(kQueries * kDim);
    out = take(kQueries * kDim);
    scores = take(kQueries * kBlock);
    totals = take(kQueries * 16);
    largest = take(kQueries);
    keys = take(kBlock * kDim);
    values = take(kBlock * kDim);
  }

  size_t dim;       // head_dim
  size_t wide_dim;  // head_dim in whole panels
  size_t group;
  size_t queries;  // query i * group + g is row i, head g of the group
  float* q;        // [queries][dim], scaled
  float* out;      // [queries][wide_dim], Σ weight · value so far
  float* scores;   // [queries][kBlock], then the weights
  float* totals;   // [queries][kLanes], Σ weight so far, by lane
  float* largest;  // [queries]
  float* keys;     // [panel][dim][kPanelCols]: panel p holds keys p * kPanelCols …, turned
  float* values;   // [panel][kBlock][kPanelCols]: panel p holds columns p * kPanelCols …
};

void Start(const AttentionTile& t, const Work& w) {
  for (size_t i = 0; i < w.queries; ++i) {
    const float* from =
        t.q + static_cast<int64_t>(i / w.group) * t.q_stride + (i % w.group) * w.dim;
    for (size_t c = 0; c < w.dim; ++c) w.q[i * w.dim + c] = from[c] * t.scale;
    w.largest[i] = -std::numeric_limits<float>::infinity();
  }
  std::fill_n(w.out, w.queries * w.wide_dim, 0.0f);
  std::fill_n(w.totals, w.queries * kLanes, 0.0f);
}

// Copies the next `count` keys and values.
void Gather(const AttentionTile& t, const Work& w, PositionReader& reader, size_t count) {
  const DF d;
  for (size_t j = 0; j < count; ++j) {
    const int64_t row = reader.Next();
    const float* key = t.keys + row * t.kv_stride;
    float* to = w.keys + j / kPanelCols * w.dim * kPanelCols + j % kPanelCols;
    for (size_t c = 0; c < w.dim; ++c) to[c * kPanelCols] = key[c];
    const float* value = t.values + row * t.kv_stride;
    for (size_t c = 0; c < w.dim; c += kLanes) {
      float* panel = w.values + (c / kPanelCols * kBlock + j) * kPanelCols + c % kPanelCols;
      hn::Store(LoadUpTo(value + c, std::min(kLanes, w.dim - c)), d, panel);
    }
  }
}

// Scores of queries [first, w.queries) with the gathered keys.
void Score(const Work& w, size_t first, size_t count) {
  for (size_t i = first; i < w.queries; i += kTileRows) {
    const size_t rows = std::min<size_t>(kTileRows, w.queries - i);
    for (size_t j = 0; j < count; j += kPanelCols) {
      const float* keys = w.keys + j * w.dim;
      TileRows(rows, w.q + i * w.dim, w.dim, keys, w.dim, w.scores + i * kBlock + j, kBlock, false,
               keys);
    }
  }
}

// Turns the first `seen` ≥ 1 scores of a query into weights, relative to the largest score so far.
void Weigh(const Work& w, size_t query, size_t seen) {
  const DF d;
  float* scores = w.scores + query * kBlock;
  const VF lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const VF before = hn::Set(d, w.largest[query]);
  VF largest = before;
  for (size_t j = 0; j < seen; j += kLanes) {
    const VF s =
        hn::IfThenElse(hn::FirstN(d, std::min(kLanes, seen - j)), hn::Load(d, scores + j), lowest);
    largest = hn::Max(largest, s);
  }
  largest = hn::MaxOfLanes(d, largest);
  w.largest[query] = hn::GetLane(largest);
  // Before the first block this is some finite factor of sums that are still zero.
  const VF shrink = Exp(hn::Sub(before, largest));
  VF total = hn::Mul(hn::Load(d, w.totals + query * kLanes), shrink);
  for (size_t j = 0; j < seen; j += kLanes) {
    const VF weight = hn::IfThenElseZero(hn::FirstN(d, std::min(kLanes, seen - j)),
                                         Exp(hn::Sub(hn::Load(d, scores + j), largest)));
    hn::Store(weight, d, scores + j);
    total = hn::Add(total, weight);
  }
  hn::Store(total, d, w.totals + query * kLanes);
  float* out = w.out + query * w.wide_dim;
  for (size_t c = 0; c < w.wide_dim; c += kLanes)
    hn::Store(hn::Mul(hn::Load(d, out + c), shrink), d, out + c);
}

// out of `rows` queries from `first` += weights · values, keys [begin, end).
void AddValues(const Work& w, size_t first, size_t rows, size_t begin, size_t end) {
  for (size_t c = 0; c < w.wide_dim; c += kPanelCols) {
    const float* values = w.values + (c * kBlock + begin * kPanelCols);
    TileRows(rows, w.scores + first * kBlock + begin, kBlock, values, end - begin,
             w.out + first * w.wide_dim + c, w.wide_dim, true, values);
  }
}

void Finish(const AttentionTile& t, const Work& w) {
  const DF d;
  for (size_t i = 0; i < w.queries; ++i) {
    const VF total = hn::SumOfLanes(d, hn::Load(d, w.totals + i * kLanes));
    const VF factor = hn::Div(hn::Set(d, 1.0f), total);
    float* to = t.out + static_cast<int64_t>(i / w.group) * t.out_stride + (i % w.group) * w.dim;
    for (size_t c = 0; c < w.dim; c += kLanes)
      StoreUpTo(hn::Mul(hn::Load(d, w.out + i * w.wide_dim + c), factor), to + c,
                std::min(kLanes, w.dim - c));
  }
}

void Attend(const AttentionTile& t) {
  const Work w(t);
  Start(t, w);
  PositionReader reader(t.spans);
  const auto first_position = static_cast<size_t>(t.first_position);
  const size_t positions = first_position + static_cast<size_t>(t.rows);
  for (size_t block = 0; block < positions; block += kBlock) {
    const size_t count = std::min(kBlock, positions - block);
    // Keys of the block that a query sees; queries are in order of position, so the first ones may
    // see none.
    const auto seen = [&](size_t query) {
      const size_t visible = first_position + query / w.group + 1;
      return visible <= block ? 0 : std::min(kBlock, visible - block);
    };
    size_t first = 0;
    while (seen(first) == 0) first += w.group;
    Gather(t, w, reader, count);
    Score(w, first, count);
    for (size_t i = first; i < w.queries; ++i) Weigh(w, i, seen(i));
    for (size_t i = first; i < w.queries; i += kTileRows) {
      const size_t rows = std::min<size_t>(kTileRows, w.queries - i);
      const size_t common = seen(i);
      AddValues(w, i, rows, 0, common);
      for (size_t j = i + 1; j < i + rows; ++j)
        if (seen(j) > common) AddValues(w, j, 1, common, seen(j));
    }
  }
  Finish(t, w);
}

const AttentionKernels* Kernels() {
  static constexpr AttentionKernels kKernels = {Attend};
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
const AttentionKernels& GetAttentionKernels(int64_t targets) {
  return *PickTarget(HWY_DISPATCH_TABLE(Kernels), targets)();
}
}  // namespace sysone
#endif  // HWY_ONCE
