// What the attention kernels are told about a pass: its PassPlan, turned into flat tables of 32-bit words that are copied to the
// device. Pure; the shape of the heads plays no part, so one table serves all layers of a pass.
//
// Rows are cut into tiles. A tile has up to kTileRows rows: a piece of one run, or of several neighbouring runs that begin with
// the same rows of the store (the questions of a request share its state). Keys are looked at in blocks of kBlockKeys positions,
// 0 … 15, 16 … 31 and so on, whatever the tile: so in which order a row takes its keys follows from its position alone.
// The blocks that lie wholly in the common beginning of a tile's segments are read once for all its rows, the others once for each
// segment:
//
//   blocks    | 0 | 1 | … | shared_blocks - 1 |  shared_blocks | …                     keys found through
//   segment 0 |       all rows of the tile    |  its rows only                         its spans
//   segment 1 |       likewise                |          its rows only                 its spans
//
// Positions are also cut into chunks, 0 … 511, 512 … 1023 and so on. A row has a softmax of its own over each chunk that it sees,
// and these are put together in order: so its result does not depend on who works on which chunk. A few rows over thousands of
// keys would keep a few multiprocessors busy; so the chunks of a tile may be entries of their own, which blocks take one by one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sysone {

// Rows of a tile: as many as the left side of a tensor-core product has.
inline constexpr int32_t kTileRows = 16;
// Positions of a block, and of a stage: the four blocks whose keys are fetched together, the first of them a multiple of four.
inline constexpr int32_t kBlockKeys = 16;
inline constexpr int32_t kStageBlocks = 4;
// Positions of a chunk, a multiple of those of a stage. Eight stages take some 3 µs, a little more than what a block needs before
// and after them; and the passes that are kept ready (up to 512 rows) see no more, unless something is cached.
inline constexpr int32_t kChunkKeys = 512;
// Chunks that are entries of their own, in a table: with 8 kv heads, some 15 for each multiprocessor. Each leaves its part of the
// results in memory (see AttentionPartBytes).
inline constexpr int32_t kMostParts = 256;

// What a table has room for. A table of the same limits has the same size and layout, whatever is in it.
struct AttentionLimits {
  int32_t rows = 0;   // of all runs together
  int32_t runs = 0;   // never more than rows
  int32_t spans = 0;  // PassPlan::spans, each counted once
  // Whether a row may see more than kChunkKeys positions. Where none does, a table needs no room for parts of tiles.
  bool chunks = false;

  bool Holds(const AttentionLimits& needed) const {
    return needed.rows <= rows && needed.runs <= runs && needed.spans <= spans &&
           (chunks || !needed.chunks);
  }
};
// Those that a plan needs, exactly.
AttentionLimits LimitsOf(const PassPlan& plan);

// --- Entries, each 16 or 8 bytes aligned.

struct alignas(16) DeviceTile {
  int32_t first_segment;  // its segments lie behind each other
  int32_t segment_count;
  int32_t rows;           // of all segments, 1 … kTileRows
  int32_t shared_blocks;  // first blocks that are in the same rows of the store for every segment
  // Of its positions, those that this entry looks at: all, or one chunk of a tile that is in parts.
  int32_t first_chunk, end_chunk;
  int32_t chunks;  // of all its entries
  // Number of chunk 0 among the parts of all tiles; -1: this entry has all chunks.
  int32_t first_part;
};
struct alignas(16) DeviceSegment {
  int32_t first_row;  // of the pass
  int32_t rows;       // consecutive, at consecutive positions
  int32_t first_position;
  int32_t tile_row;    // of its first row, in the tile
  int32_t first_span;  // of its run
  int32_t rest_span;   // that holds its first position behind the shared blocks, if there is one
  int32_t end_span;    // behind the last of its run
  int32_t unused;
};
// Positions count - first.count … of a run are in rows first_row … of the store, where `first` is the run's first span.
struct alignas(8) DeviceSpan {
  int32_t first_row;
  int32_t count;  // of the rows of all spans before this one, those of other runs included
};

// Where the entries lie in a table of these limits, in words from its beginning. Word 0 is the number of tiles in use, each part
// counted; they are the first ones, those with most work before the others. The rest of a table is not read.
struct AttentionLayout {
  explicit AttentionLayout(const AttentionLimits& limits);
  int32_t max_segments;
  int32_t max_tiles;               // parts included
  int64_t tiles, segments, spans;  // multiples of 4; one span more than the limit ends the last
  int64_t words;                   // of the table
};

// Reused from pass to pass; its vectors keep their memory.
class AttentionTables {
 public:
  // `most_parts`: other than kMostParts for tests, which is the most.
  explicit AttentionTables(int32_t most_parts = kMostParts) : most_parts_(most_parts) {}

  // Writes the plan's table to `table`: AttentionLayout(limits).words words on 16 bytes, of which those not in use are left as
  // they are. `limits` must hold LimitsOf(plan).
  void Write(const PassPlan& plan, const AttentionLimits& limits, std::span<int32_t> table);

 private:
  struct Tile {
    DeviceTile entry;
    int32_t shared_positions;  // in the same rows for all its segments, each of which sees them
    int32_t stages;            // that are fetched for it
  };
  struct Entry {
    DeviceTile tile;
    int32_t stages;
  };

  void CountSpans(const PassPlan& plan);
  void Add(const AttentionRun& run, const KvSpan* spans);
  // With the segment, which is then pushed back.
  void Begin(const DeviceSegment& segment);
  // Puts as many of the rows as have room into the last tile; false if they had better begin another one.
  bool Join(DeviceSegment& segment, int32_t rows_left, const KvSpan* spans);
  void FindRests(const Tile& tile);
  // Tiles in their order, each as one entry or as one for each chunk.
  void MakeEntries(const AttentionLimits& limits);
  int32_t StagesOf(const DeviceTile& tile) const;

  const int32_t most_parts_;
  std::vector<Tile> tiles_;
  std::vector<Entry> entries_;
  std::vector<DeviceSegment> segments_;
  std::vector<DeviceSpan> spans_;
};

}  // namespace sysone
