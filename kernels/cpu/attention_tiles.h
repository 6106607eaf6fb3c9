// Cuts the runs of a pass into tiles, the pieces of work of attention. A tile has enough rows to fill the registers, and all
// its rows see a common beginning of the sequence, whose keys are looked at once for the whole tile. Rows of a long run share
// everything before them; short runs that continue the same rows of the store (the questions of a request) are put into one
// tile and share that. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/kernel_tables.h"

namespace sysone {

// Some segments of Tiles::segments.
struct TileOfRows {
  int32_t first_segment = 0;
  int32_t segment_count = 0;
  int32_t rows = 0;  // of all segments
  int32_t shared_positions =
      0;  // 0 … this: the same rows of the store for all segments, seen by all rows; at least 1
  int64_t work = 0;  // pairs of a row and a position that it sees
};

struct Tiles {
  std::vector<AttentionSegment> segments;
  std::vector<TileOfRows> tiles;  // most work first, so that no thread ends on a long one
};

// Every row of the plan's runs goes into one tile; a tile has at most `max_rows` rows. `tiles` is overwritten; its pointers
// are into plan.spans.
void CutIntoTiles(const PassPlan& plan, int32_t max_rows, Tiles& tiles);

}  // namespace sysone
