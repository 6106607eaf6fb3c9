// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_tables.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "base/check.h"
#include "kernels/shared_positions.h"

namespace sysone {
namespace {

static_assert(sizeof(DeviceTile) == 32 && sizeof(DeviceSegment) == 32 && sizeof(DeviceSpan) == 8);

constexpr int64_t kEntryUnit = 4;  // words: entries are read 16 bytes at a time

template <class Entry>
constexpr int64_t Words(int64_t entries) {
  const int64_t words = entries * static_cast<int64_t>(sizeof(Entry) / sizeof(int32_t));
  return (words + kEntryUnit - 1) / kEntryUnit * kEntryUnit;
}

// Every segment begins with a run, or where a tile is full. Each tile has one at least.
int32_t MostSegments(const AttentionLimits& limits) {
  return std::min(limits.rows, limits.runs + limits.rows / kTileRows);
}

// Stages that hold the blocks first … end - 1.
int32_t Stages(int32_t first, int32_t end) {
  return first < end ? (end - 1) / kStageBlocks - first / kStageBlocks + 1 : 0;
}

int32_t BlocksOf(int32_t positions) { return (positions + kBlockKeys - 1) / kBlockKeys; }

// Positions that the last row of a segment sees.
int32_t SeenPositions(const DeviceSegment& segment) {
  return segment.first_position + segment.rows;
}

int32_t ChunksOf(int32_t positions) { return (positions + kChunkKeys - 1) / kChunkKeys; }

}  // namespace

AttentionLimits LimitsOf(const PassPlan& plan) {
  AttentionLimits limits;
  for (const AttentionRun& run : plan.runs) {
    limits.rows += run.rows;
    limits.chunks |= run.rows > 0 && run.first_position + run.rows > kChunkKeys;
  }
  limits.runs = static_cast<int32_t>(
      std::ranges::count_if(plan.runs, [](const AttentionRun& run) { return run.rows > 0; }));
  limits.spans = static_cast<int32_t>(plan.spans.size());
  return limits;
}

AttentionLayout::AttentionLayout(const AttentionLimits& limits)
    : max_segments(MostSegments(limits)),
      max_tiles(max_segments + (limits.chunks ? kMostParts : 0)),
      tiles(kEntryUnit),
      segments(tiles + Words<DeviceTile>(max_tiles)),
      spans(segments + Words<DeviceSegment>(max_segments)),
      words(spans + Words<DeviceSpan>(limits.spans + 1)) {}

void AttentionTables::Write(const PassPlan& plan, const AttentionLimits& limits,
                            std::span<int32_t> table) {
  const AttentionLayout layout(limits);
  SYSONE_CHECK(limits.Holds(LimitsOf(plan)) && std::ssize(table) >= layout.words,
               "a table for %d rows, %d runs, %d spans has no room for its plan", limits.rows,
               limits.runs, limits.spans);
  CountSpans(plan);
  segments_.clear();
  tiles_.clear();
  for (const AttentionRun& run : plan.runs) Add(run, plan.spans.data());
  for (const Tile& tile : tiles_) FindRests(tile);
  MakeEntries(limits);

  std::memset(table.data(), 0, kEntryUnit * sizeof(int32_t));
  table[0] = static_cast<int32_t>(entries_.size());
  int32_t* to = table.data() + layout.tiles;
  for (const Entry& entry : entries_) {
    std::memcpy(to, &entry.tile, sizeof(DeviceTile));
    to += sizeof(DeviceTile) / sizeof(int32_t);
  }
  if (!segments_.empty())
    std::memcpy(table.data() + layout.segments, segments_.data(),
                segments_.size() * sizeof(DeviceSegment));
  std::memcpy(table.data() + layout.spans, spans_.data(), spans_.size() * sizeof(DeviceSpan));
}

void AttentionTables::CountSpans(const PassPlan& plan) {
  spans_.clear();
  int64_t count = 0;
  for (const KvSpan& span : plan.spans) {
    spans_.push_back({span.first_row, static_cast<int32_t>(count)});
    count += span.count;
    SYSONE_CHECK(count <= std::numeric_limits<int32_t>::max(),
                 "the spans of a pass list too many rows");
  }
  spans_.push_back({0, static_cast<int32_t>(count)});
}

void AttentionTables::Add(const AttentionRun& run, const KvSpan* spans) {
  const auto first = static_cast<size_t>(run.first_span);
  const auto end = first + static_cast<size_t>(run.span_count);
  SYSONE_CHECK(end < spans_.size() &&
                   spans_[end].count - spans_[first].count >= run.first_position + run.rows,
               "the spans of a run are shorter than its positions");
  for (int32_t done = 0; done < run.rows;) {
    DeviceSegment segment{.first_row = run.first_row + done,
                          .rows = 0,
                          .first_position = run.first_position + done,
                          .tile_row = 0,
                          .first_span = run.first_span,
                          .rest_span = run.first_span,
                          .end_span = run.first_span + run.span_count,
                          .unused = 0};
    if (!Join(segment, run.rows - done, spans)) {
      segment.rows = std::min(kTileRows, run.rows - done);
      Begin(segment);
    }
    segments_.push_back(segment);
    done += segment.rows;
  }
}

void AttentionTables::Begin(const DeviceSegment& segment) {
  const int32_t seen = SeenPositions(segment);
  tiles_.push_back({.entry = {.first_segment = static_cast<int32_t>(segments_.size()),
                              .segment_count = 1,
                              .rows = segment.rows,
                              .shared_blocks = 0,
                              .first_chunk = 0,
                              .end_chunk = ChunksOf(seen),
                              .chunks = ChunksOf(seen),
                              .first_part = -1},
                    .shared_positions = seen,
                    .stages = Stages(0, BlocksOf(seen))});
}

// A tile pays while it fetches no more for its segments one by one than for all of them together: up to there its time is at
// most twice that of the common beginning alone, and reading that again for another tile would take as long.
bool AttentionTables::Join(DeviceSegment& segment, int32_t rows_left, const KvSpan* spans) {
  if (tiles_.empty() || tiles_.back().entry.rows == kTileRows) return false;
  Tile& tile = tiles_.back();
  segment.rows = std::min(kTileRows - tile.entry.rows, rows_left);
  const auto first = static_cast<size_t>(tile.entry.first_segment);
  const int32_t shared_positions =
      SharedPositions(spans + segments_[first].first_span, spans + segment.first_span,
                      std::min(tile.shared_positions, SeenPositions(segment)));
  const int32_t shared_blocks = shared_positions / kBlockKeys;
  const int32_t shared_stages = Stages(0, shared_blocks);
  int32_t own_stages = Stages(shared_blocks, BlocksOf(SeenPositions(segment)));
  for (size_t s = first; s < segments_.size(); ++s)
    own_stages += Stages(shared_blocks, BlocksOf(SeenPositions(segments_[s])));
  if (own_stages > shared_stages) return false;

  segment.tile_row = tile.entry.rows;
  ++tile.entry.segment_count;
  tile.entry.rows += segment.rows;
  tile.entry.shared_blocks = shared_blocks;
  tile.entry.chunks = std::max(tile.entry.chunks, ChunksOf(SeenPositions(segment)));
  tile.entry.end_chunk = tile.entry.chunks;
  tile.shared_positions = shared_positions;
  tile.stages = shared_stages + own_stages;
  return true;
}

void AttentionTables::FindRests(const Tile& tile) {
  const int32_t position = tile.entry.shared_blocks * kBlockKeys;
  for (int32_t i = 0; i < tile.entry.segment_count; ++i) {
    DeviceSegment& segment = segments_[static_cast<size_t>(tile.entry.first_segment + i)];
    if (SeenPositions(segment) <= position) continue;  // it has no rest
    const auto begin = spans_.begin() + segment.first_span, end = spans_.begin() + segment.end_span;
    const auto after =
        std::ranges::upper_bound(begin, end, begin->count + position, {}, &DeviceSpan::count);
    segment.rest_span = static_cast<int32_t>(after - 1 - spans_.begin());
  }
}

int32_t AttentionTables::StagesOf(const DeviceTile& tile) const {
  constexpr int32_t kChunkBlocks = kChunkKeys / kBlockKeys;
  const int32_t first = tile.first_chunk * kChunkBlocks, end = tile.end_chunk * kChunkBlocks;
  int32_t stages = Stages(first, std::min(tile.shared_blocks, end));
  for (int32_t i = 0; i < tile.segment_count; ++i) {
    const DeviceSegment& segment = segments_[static_cast<size_t>(tile.first_segment + i)];
    stages += Stages(std::max(tile.shared_blocks, first),
                     std::min(BlocksOf(SeenPositions(segment)), end));
  }
  return stages;
}

// Those with most work come first, so that the last ones to be taken are short: tiles that keep to one entry, because the parts
// are used up, before parts, which fill what they leave.
void AttentionTables::MakeEntries(const AttentionLimits& limits) {
  std::ranges::sort(tiles_, {}, [](const Tile& tile) {
    return std::tuple(-tile.stages, tile.entry.first_segment);
  });
  const int32_t most_parts = limits.chunks ? most_parts_ : 0;
  int32_t parts = 0;
  entries_.clear();
  for (const Tile& tile : tiles_) {
    DeviceTile entry = tile.entry;
    if (entry.chunks == 1 || entry.chunks > most_parts - parts) {
      entries_.push_back({entry, tile.stages});
      continue;
    }
    entry.first_part = parts;
    parts += entry.chunks;
    for (int32_t chunk = 0; chunk < entry.chunks; ++chunk) {
      entry.first_chunk = chunk;
      entry.end_chunk = chunk + 1;
      entries_.push_back({entry, StagesOf(entry)});
    }
  }
  if (parts > 0)
    std::ranges::sort(entries_, {}, [](const Entry& entry) {
      return std::tuple(-entry.stages, entry.tile.first_segment, entry.tile.first_chunk);
    });
}

}  // namespace sysone
