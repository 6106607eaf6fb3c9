// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_tiles.h"

#include <algorithm>

#include "kernels/shared_positions.h"

namespace sysone {
namespace {

// Adds rows to the last tile or begins another one.
class Cutter {
 public:
  Cutter(int32_t max_rows, Tiles& tiles) : max_rows_(max_rows), tiles_(tiles) {}

  void Add(const AttentionRun& run, const KvSpan* spans) {
    for (int32_t done = 0; done < run.rows;) {
      const int32_t first_position = run.first_position + done;
      if (!Joins(first_position, spans)) {
        tiles_.tiles.push_back(
            {static_cast<int32_t>(tiles_.segments.size()), 0, 0, first_position + 1, 0});
      }
      TileOfRows& tile = tiles_.tiles.back();
      const int32_t rows = std::min(max_rows_ - tile.rows, run.rows - done);
      tiles_.segments.push_back({run.first_row + done, rows, first_position, spans});
      ++tile.segment_count;
      tile.rows += rows;
      tile.work += int64_t{rows} * first_position + int64_t{rows} * (rows + 1) / 2;
      done += rows;
    }
  }

 private:
  // Whether a row at that position goes into the last tile, which then shares no more than they do.
  bool Joins(int32_t position, const KvSpan* spans) {
    if (tiles_.tiles.empty() || tiles_.tiles.back().rows == max_rows_) return false;
    TileOfRows& tile = tiles_.tiles.back();
    const AttentionSegment& first = tiles_.segments[static_cast<size_t>(tile.first_segment)];
    const int32_t shared =
        SharedPositions(first.spans, spans, std::min(tile.shared_positions, position + 1));
    if (shared > 0) tile.shared_positions = shared;
    return shared > 0;
  }

  const int32_t max_rows_;
  Tiles& tiles_;
};

}  // namespace

void CutIntoTiles(const PassPlan& plan, int32_t max_rows, Tiles& tiles) {
  tiles.segments.clear();
  tiles.tiles.clear();
  Cutter cutter(max_rows, tiles);
  for (const AttentionRun& run : plan.runs) cutter.Add(run, plan.spans.data() + run.first_span);
  std::ranges::stable_sort(tiles.tiles, std::greater(), &TileOfRows::work);
}

}  // namespace sysone
