// Causal attention of one tile of queries over blocks of keys, with a running softmax.
//
//   scores[key][query] = Σ_d key[d] · q[d][query]      keys where they lie in the store, queries turned: the lanes are queries
//   weights[key][query]                                 all of softmax is lane by lane
//   out[query][d] += Σ_key weights[key][query] · value[d]   values where they lie
//
// A block has a shared part, keys that all segments of the tile see, and after it each segment's own keys; both kinds may be
// in one block. Blocks start at multiples of kKeyBlock in the sequence, every sum is one chain in the order of its index, and
// a query never touches a key or value that it does not see. So its result hangs on its own sequence alone, however the
// sequence is cut into runs, spans and tiles, whoever is in the tile, and wherever in the store its rows lie.
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
// Keys that are taken through one panel of queries: together half of the first-level cache.
constexpr size_t kChunk = 24;
constexpr auto kQueries = static_cast<size_t>(kMaxQueries);
static_assert(kQueries % kPanelCols == 0);

constexpr size_t RoundUp(size_t count, size_t unit) { return (count + unit - 1) / unit * unit; }

// Store row of each position, in order.
class PositionReader {
 public:
  PositionReader() = default;
  explicit PositionReader(const KvSpan* spans) : span_(spans) {}
  void Skip(int32_t count) {
    while (count > 0) {
      Settle();
      const int32_t step = std::min(count, span_->count - used_);
      used_ += step;
      count -= step;
    }
  }
  int64_t Next() {
    Settle();
    return span_->first_row + used_++;
  }

 private:
  void Settle() {
    while (used_ == span_->count) {
      ++span_;
      used_ = 0;
    }
  }

  const KvSpan* span_ = nullptr;
  int32_t used_ = 0;
};

// Where some consecutive keys of a block and their values lie, from `begin` within the block on.
struct KeyRows {
  size_t begin = 0;
  size_t end = 0;
  const float* keys[kBlock];
  const float* values[kBlock];
};

HWY_NOINLINE void Locate(const AttentionTile& t, PositionReader& reader, size_t begin, size_t end,
                         KeyRows& rows) {
  rows.begin = begin;
  rows.end = end;
  for (size_t j = begin; j < end; ++j) {
    const int64_t row = reader.Next();
    rows.keys[j] = t.keys + row * t.key_stride;
    rows.values[j] = t.values + row * kValueCols;
  }
}

// The scratch of a tile, cut up, and sizes as size_t. Query i * group + g is row i, head g of the group.
struct Work {
  explicit Work(const AttentionTile& t)
      : dim(static_cast<size_t>(t.head_dim)),
        wide_dim(RoundUp(dim, kPanelCols)),
        group(static_cast<size_t>(t.group)),
        queries(group * static_cast<size_t>(t.rows)),
        wide_queries(RoundUp(queries, kPanelCols)),
        value_stride(static_cast<size_t>(t.value_stride)) {
    float* at = t.scratch;
    const auto take = [&at](size_t count) {
      float* const part = at;
      at += count;
      return part;
    };
    q = take(wide_queries * dim);
    out = take(wide_queries * wide_dim);
    scores = take(kBlock * wide_queries);
    limits = take(kQueries);
    largest = take(kQueries);
    totals = take(kQueries);
    shrink = take(kQueries);
  }

  size_t dim;       // head_dim
  size_t wide_dim;  // head_dim in whole panels
  size_t group;
  size_t queries;
  size_t wide_queries;  // in whole panels; the lanes past the last query hold harmless numbers
  size_t value_stride;
  float* q;        // [panel][dim][kPanelCols], scaled
  float* out;      // [queries][wide_dim], Σ weight · value so far
  float* scores;   // [kBlock][wide_queries], then the weights
  float* limits;   // [queries] position of the query + 1, exact up to 2^24
  float* largest;  // [queries] score so far
  float* totals;   // [queries] Σ weight so far
  float* shrink;   // [queries] what the sums so far are multiplied by in this block
};

// Writes rows[…][0 … dim) times scale as columns, kPanelCols apart.
#if HWY_TARGET == HWY_SCALAR
constexpr size_t kTurned = 1;
HWY_INLINE void Turn(const float* const* rows, size_t dim, float scale, float* to) {
  for (size_t c = 0; c < dim; ++c) to[c * kPanelCols] = rows[0][c] * scale;
}
#else
constexpr size_t kTurned = 4;
HWY_INLINE void Turn(const float* const* rows, size_t dim, float scale, float* to) {
  const hn::FixedTag<float, 4> d;
  const auto factor = hn::Set(d, scale);
  size_t c = 0;
  for (; c + 4 <= dim; c += 4, to += 4 * kPanelCols) {
    const auto row = [&](int r) HWY_ATTR { return hn::Mul(hn::LoadU(d, rows[r] + c), factor); };
    const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
    const auto low02 = hn::InterleaveLower(d, r0, r2), high02 = hn::InterleaveUpper(d, r0, r2);
    const auto low13 = hn::InterleaveLower(d, r1, r3), high13 = hn::InterleaveUpper(d, r1, r3);
    hn::Store(hn::InterleaveLower(d, low02, low13), d, to);
    hn::Store(hn::InterleaveUpper(d, low02, low13), d, to + kPanelCols);
    hn::Store(hn::InterleaveLower(d, high02, high13), d, to + 2 * kPanelCols);
    hn::Store(hn::InterleaveUpper(d, high02, high13), d, to + 3 * kPanelCols);
  }
  for (; c < dim; ++c, to += kPanelCols)
    for (size_t r = 0; r < kTurned; ++r) to[r] = rows[r][c] * scale;
}
#endif

// Scales and turns the queries into panels, and clears the sums.
HWY_NOINLINE void Start(const AttentionTile& t, const Work& w) {
  const float* from[kQueries];
  size_t i = 0;
  for (int32_t s = 0; s < t.segment_count; ++s) {
    const AttentionSegment& segment = t.segments[s];
    for (int32_t r = 0; r < segment.rows; ++r) {
      const float* const row = t.q + (segment.first_row + r) * t.q_stride;
      // Another thread has just written them, far apart.
      for (size_t c = 0; c < w.group * w.dim; c += 16) hwy::Prefetch(row + c);
      for (size_t g = 0; g < w.group; ++g, ++i) {
        from[i] = row + g * w.dim;
        w.limits[i] = static_cast<float>(segment.first_position + r + 1);
      }
    }
  }
  // The lanes past the last query repeat it.
  std::fill(from + i, from + w.wide_queries, from[i - 1]);
  std::fill(w.limits + i, w.limits + w.wide_queries, w.limits[i - 1]);
  for (i = 0; i < w.wide_queries; i += kTurned)
    Turn(from + i, w.dim, t.scale, w.q + i / kPanelCols * w.dim * kPanelCols + i % kPanelCols);
  std::fill_n(w.out, w.queries * w.wide_dim, 0.0f);
  std::fill_n(w.totals, w.wide_queries, 0.0f);
  std::fill_n(w.largest, w.wide_queries, std::numeric_limits<float>::lowest());
}

// Scores of kKeys keys with kVectors vectors of queries.
template <int kKeys, int kVectors>
HWY_INLINE void ScoreTile(const float* const* HWY_RESTRICT keys, const float* HWY_RESTRICT q,
                          size_t dim, float* HWY_RESTRICT scores, size_t stride, size_t begin,
                          size_t end) {
  const DF d;
  VF sums[kKeys][kVectors];
  const float* rows[kKeys];
  for (int r = 0; r < kKeys; ++r) {
    rows[r] = keys[r];
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
#pragma GCC unroll 4
  for (size_t c = 0; c < dim; ++c, q += kPanelCols) {
    VF lanes[kVectors];
    for (int v = 0; v < kVectors; ++v) lanes[v] = hn::Load(d, q + static_cast<size_t>(v) * kLanes);
    for (int r = 0; r < kKeys; ++r) {
      const VF value = hn::Set(d, rows[r][c]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, lanes[v], sums[r][v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const size_t first = static_cast<size_t>(v) * kLanes;
    const bool whole = begin <= first && first + kLanes <= end;
    const auto lane = hn::Iota(d, static_cast<float>(first));
    const auto mine = hn::And(hn::Ge(lane, hn::Set(d, static_cast<float>(begin))),
                              hn::Lt(lane, hn::Set(d, static_cast<float>(end))));
    for (int r = 0; r < kKeys; ++r) {
      float* const to = scores + static_cast<size_t>(r) * stride + first;
      hn::Store(whole ? sums[r][v] : hn::IfThenElse(mine, sums[r][v], hn::Load(d, to)), d, to);
    }
  }
}

template <int kVectors, int kKeys = kTileRows>
HWY_INLINE void ScoreTiles(size_t count, const float* const* keys, const float* q, size_t dim,
                           float* scores, size_t stride, size_t begin, size_t end) {
  if constexpr (kKeys >= 1) {
    if (count == kKeys)
      ScoreTile<kKeys, kVectors>(keys, q, dim, scores, stride, begin, end);
    else
      ScoreTiles<kVectors, kKeys - 1>(count, keys, q, dim, scores, stride, begin, end);
  }
}

// Scores of queries [first, last) with the keys. Other lanes stay as they are.
HWY_NOINLINE void Score(const Work& w, const KeyRows& rows, size_t first, size_t last) {
  for (size_t chunk = rows.begin; chunk < rows.end; chunk += kChunk) {
    const size_t chunk_end = std::min(chunk + kChunk, rows.end);
    for (size_t panel = first / kPanelCols * kPanelCols; panel < last; panel += kPanelCols) {
      // The lanes that are wanted, within the panel; one vector if that holds them all.
      const size_t begin = first > panel ? first - panel : 0,
                   end = std::min(last - panel, kPanelCols);
      const bool both = begin < kLanes && end > kLanes;
      const size_t skip = begin < kLanes ? 0 : kLanes;
      const float* q = w.q + panel * w.dim + skip;
      for (size_t j = chunk; j < chunk_end; j += kTileRows) {
        const size_t count = std::min<size_t>(kTileRows, chunk_end - j);
        float* scores = w.scores + j * w.wide_queries + panel + skip;
        if (both)
          ScoreTiles<2>(count, rows.keys + j, q, w.dim, scores, w.wide_queries, begin, end);
        else
          ScoreTiles<1>(count, rows.keys + j, q, w.dim, scores, w.wide_queries,
                        begin - std::min(begin, skip), end - skip);
      }
    }
  }
}

// Turns the scores of a block that the queries see into weights, relative to the largest score so far.
HWY_NOINLINE void Weigh(const Work& w, size_t block, size_t count) {
  const DF d;
  const VF lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  for (size_t i = 0; i < w.wide_queries; i += kLanes) {
    const VF limit = hn::Sub(hn::Load(d, w.limits + i), hn::Set(d, static_cast<float>(block)));
    // All lanes see the keys before `all`, none those from `some` on.
    const auto seen = [count](VF lanes) HWY_ATTR {
      const float keys = hn::GetLane(lanes);
      return keys <= 0 ? size_t{0} : std::min(count, static_cast<size_t>(keys));
    };
    const size_t all = seen(hn::MinOfLanes(d, limit)), some = seen(hn::MaxOfLanes(d, limit));
    const auto sees = [&](size_t j)
                          HWY_ATTR { return hn::Lt(hn::Set(d, static_cast<float>(j)), limit); };
    float* const scores = w.scores + i;
    const VF before = hn::Load(d, w.largest + i);
    VF largest = before;
    for (size_t j = 0; j < all; ++j)
      largest = hn::Max(largest, hn::Load(d, scores + j * w.wide_queries));
    for (size_t j = all; j < some; ++j)
      largest = hn::Max(largest,
                        hn::IfThenElse(sees(j), hn::Load(d, scores + j * w.wide_queries), lowest));
    // 1 if nothing is seen. Before the first block some finite factor of sums that are still zero.
    const VF shrink = Exp(hn::Sub(before, largest));
    VF total = hn::Mul(hn::Load(d, w.totals + i), shrink);
    for (size_t j = 0; j < some; ++j) {
      VF weight = Exp(hn::Sub(hn::Load(d, scores + j * w.wide_queries), largest));
      if (j >= all) weight = hn::IfThenElseZero(sees(j), weight);
      hn::Store(weight, d, scores + j * w.wide_queries);
      total = hn::Add(total, weight);
    }
    hn::Store(largest, d, w.largest + i);
    hn::Store(shrink, d, w.shrink + i);
    hn::Store(total, d, w.totals + i);
  }
}

HWY_NOINLINE void Shrink(const Work& w) {
  const DF d;
  for (size_t i = 0; i < w.queries; ++i) {
    if (w.shrink[i] == 1) continue;
    const VF factor = hn::Set(d, w.shrink[i]);
    float* const out = w.out + i * w.wide_dim;
    for (size_t c = 0; c < w.wide_dim; c += kLanes)
      hn::Store(hn::Mul(hn::Load(d, out + c), factor), d, out + c);
  }
}

// out of kRows queries, one panel of columns, += Σ weight · value.
template <int kRows>
HWY_INLINE void ValueTile(const float* HWY_RESTRICT weights, size_t stride,
                          const float* const* HWY_RESTRICT values, size_t col, size_t high_col,
                          size_t count, float* HWY_RESTRICT out, size_t out_stride) {
  const DF d;
  VF sums[kRows][2];
  for (size_t r = 0; r < kRows; ++r) {
    sums[r][0] = hn::Load(d, out + r * out_stride);
    sums[r][1] = hn::Load(d, out + r * out_stride + kLanes);
  }
#pragma GCC unroll 4
  for (size_t j = 0; j < count; ++j, weights += stride) {
    const VF low = hn::Load(d, values[j] + col), high = hn::Load(d, values[j] + high_col);
    for (size_t r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r]);
      sums[r][0] = hn::MulAdd(weight, low, sums[r][0]);
      sums[r][1] = hn::MulAdd(weight, high, sums[r][1]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    hn::Store(sums[r][0], d, out + r * out_stride);
    hn::Store(sums[r][1], d, out + r * out_stride + kLanes);
  }
}

template <int kRows = kTileRows>
HWY_INLINE void ValueTiles(size_t rows, const float* weights, size_t stride,
                           const float* const* values, size_t col, size_t high_col, size_t count,
                           float* out, size_t out_stride) {
  if constexpr (kRows >= 1) {
    if (rows == kRows)
      ValueTile<kRows>(weights, stride, values, col, high_col, count, out, out_stride);
    else
      ValueTiles<kRows - 1>(rows, weights, stride, values, col, high_col, count, out, out_stride);
  }
}

// out of queries [first, last) += weights · values, keys [begin, end) of the block.
HWY_NOINLINE void AddValues(const Work& w, const float* const* values, size_t first, size_t last,
                            size_t begin, size_t end) {
  const auto col = [&](size_t c) { return c / kValueCols * w.value_stride + c % kValueCols; };
  for (size_t c = 0; c < w.wide_dim; c += kPanelCols) {
    for (size_t i = first; i < last; i += kTileRows) {
      ValueTiles(std::min<size_t>(kTileRows, last - i), w.scores + begin * w.wide_queries + i,
                 w.wide_queries, values + begin, col(c), col(c + kLanes), end - begin,
                 w.out + i * w.wide_dim + c, w.wide_dim);
    }
  }
}

// The same for a segment's own keys, of which each query sees one more than the query of the row before.
HWY_NOINLINE void AddOwnValues(const Work& w, const KeyRows& rows, size_t block, size_t first,
                               size_t last) {
  const auto seen = [&](size_t query) {
    const auto limit = static_cast<size_t>(w.limits[query]);
    return std::clamp(limit - std::min(limit, block), rows.begin, rows.end);
  };
  for (size_t i = first; i < last; i += kTileRows) {
    const size_t end = std::min<size_t>(i + kTileRows, last), common = seen(i);
    AddValues(w, rows.values, i, end, rows.begin, common);
    for (size_t j = i + 1; j < end; ++j)
      if (seen(j) > common) AddValues(w, rows.values, j, j + 1, common, seen(j));
  }
}

HWY_NOINLINE void Finish(const AttentionTile& t, const Work& w) {
  const DF d;
  size_t i = 0;
  for (int32_t s = 0; s < t.segment_count; ++s) {
    const AttentionSegment& segment = t.segments[s];
    for (int32_t r = 0; r < segment.rows; ++r) {
      float* to = t.out + (segment.first_row + r) * t.out_stride;
      for (size_t g = 0; g < w.group; ++g, ++i, to += w.dim) {
        const VF factor = hn::Set(d, 1 / w.totals[i]);
        for (size_t c = 0; c < w.dim; c += kLanes)
          StoreUpTo(hn::Mul(hn::Load(d, w.out + i * w.wide_dim + c), factor), to + c,
                    std::min(kLanes, w.dim - c));
      }
    }
  }
}

void Attend(const AttentionTile& t) {
  const Work w(t);
  Start(t, w);
  const auto shared = static_cast<size_t>(t.shared_positions);
  PositionReader shared_reader(t.segments[0].spans), own_readers[kQueries];
  size_t positions = shared;
  for (int32_t s = 0; s < t.segment_count; ++s) {
    own_readers[s] = PositionReader(t.segments[s].spans);
    own_readers[s].Skip(t.shared_positions);
    positions =
        std::max(positions, static_cast<size_t>(t.segments[s].first_position + t.segments[s].rows));
  }
  KeyRows shared_rows, own_rows[kQueries];
  for (size_t block = 0; block < positions; block += kBlock) {
    const size_t shared_end = shared <= block ? 0 : std::min(kBlock, shared - block);
    Locate(t, shared_reader, 0, shared_end, shared_rows);
    Score(w, shared_rows, 0, w.queries);
    // Calls act(own keys, first query, last query) for the segments that have some of their own in this block.
    const auto for_own = [&](const auto& act) {
      size_t first = 0;
      for (int32_t s = 0; s < t.segment_count; ++s) {
        const AttentionSegment& segment = t.segments[s];
        const size_t last = first + static_cast<size_t>(segment.rows) * w.group;
        const auto end = static_cast<size_t>(segment.first_position + segment.rows);
        if (end > block + shared_end) act(s, std::min(kBlock, end - block), first, last);
        first = last;
      }
    };
    for_own([&](int32_t s, size_t end, size_t first, size_t last) {
      Locate(t, own_readers[s], shared_end, end, own_rows[s]);
      Score(w, own_rows[s], first, last);
    });
    Weigh(w, block, std::min(kBlock, positions - block));
    Shrink(w);
    AddValues(w, shared_rows.values, 0, w.queries, 0, shared_end);
    for_own([&](int32_t s, size_t, size_t first, size_t last) {
      AddOwnValues(w, own_rows[s], block, first, last);
    });
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
