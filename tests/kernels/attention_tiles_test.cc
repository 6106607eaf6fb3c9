// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_tiles.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels/shared_positions.h"
#include "tests/kernels/attention_batch.h"

namespace sysone {
namespace {

TEST(SharedPositions, CountsRowsHoweverTheSpansAreCut) {
  const std::vector<KvSpan> whole{{10, 8}, {30, 4}};
  const std::vector<KvSpan> cut{{10, 3}, {0, 0}, {13, 5}, {30, 1}, {31, 9}};
  EXPECT_EQ(SharedPositions(whole.data(), cut.data(), 12), 12);
  EXPECT_EQ(SharedPositions(whole.data(), cut.data(), 5), 5);
  EXPECT_EQ(SharedPositions(whole.data(), cut.data(), 0), 0);
}

TEST(SharedPositions, EndsAtTheFirstDifferentRow) {
  const std::vector<KvSpan> a{{10, 8}, {30, 4}};
  EXPECT_EQ(SharedPositions(a.data(), std::vector<KvSpan>{{10, 8}, {31, 4}}.data(), 12), 8);
  EXPECT_EQ(SharedPositions(a.data(), std::vector<KvSpan>{{10, 12}}.data(), 12), 8);
  EXPECT_EQ(SharedPositions(a.data(), std::vector<KvSpan>{{9, 12}}.data(), 12), 0);
}

// Whatever the plan: each row is in one tile, with its own position; tiles hold no more rows than allowed; what a tile shares
// is the same for all its segments and seen by all its rows; the first tiles have the most work.
void CheckTiles(const AttentionBatch& batch, int32_t max_rows) {
  Tiles tiles;
  CutIntoTiles(batch.Plan(), max_rows, tiles);
  std::map<int32_t, int32_t> positions;
  int64_t work_before = INT64_MAX;
  for (const TileOfRows& tile : tiles.tiles) {
    int32_t rows = 0;
    int64_t work = 0;
    ASSERT_GE(tile.segment_count, 1);
    const AttentionSegment* const first = &tiles.segments[static_cast<size_t>(tile.first_segment)];
    for (int32_t s = 0; s < tile.segment_count; ++s) {
      const AttentionSegment& segment = first[s];
      rows += segment.rows;
      EXPECT_GE(segment.rows, 1);
      EXPECT_LE(tile.shared_positions, segment.first_position + 1);
      EXPECT_EQ(SharedPositions(first->spans, segment.spans, tile.shared_positions),
                tile.shared_positions);
      for (int32_t r = 0; r < segment.rows; ++r) {
        EXPECT_TRUE(positions.emplace(segment.first_row + r, segment.first_position + r).second);
        work += segment.first_position + r + 1;
      }
    }
    EXPECT_EQ(rows, tile.rows);
    EXPECT_LE(rows, max_rows);
    EXPECT_GE(tile.shared_positions, 1);
    EXPECT_EQ(work, tile.work);
    EXPECT_LE(work, work_before);
    work_before = work;
  }
  ASSERT_EQ(std::ssize(positions), batch.rows());
  for (const auto& [row, position] : positions)
    EXPECT_EQ(position, batch.positions[static_cast<size_t>(row)]);
}

AttentionBatch Branches(int32_t prefix_rows, const std::vector<int32_t>& branches) {
  AttentionBatch batch;
  const auto prefix = batch.AddRun({}, prefix_rows);
  for (const int32_t rows : branches) batch.AddRun(prefix, rows);
  return batch;
}

TEST(CutIntoTiles, PutsEveryRowIntoOneTile) {
  for (const int32_t max_rows : {1, 2, 7, 24, 48}) {
    for (const int32_t rows : {1, 6, 7, 8, 100}) CheckTiles(Branches(rows, {}), max_rows);
    CheckTiles(Branches(50, {1, 1, 1, 30, 3, 24, 1}), max_rows);
    AttentionBatch mixed = Branches(50, {1, 5, 1});
    mixed.AddRun({}, 9);
    mixed.AddRun(mixed.AddRun({}, 20), 20);
    CheckTiles(mixed, max_rows);
    mixed.Scatter(1);
    CheckTiles(mixed, max_rows);
  }
}

TEST(CutIntoTiles, PutsShortBranchesOfOnePrefixTogether) {
  AttentionBatch batch = Branches(96, std::vector<int32_t>(24, 2));
  Tiles tiles;
  CutIntoTiles(batch.Plan(), 24, tiles);
  ASSERT_EQ(tiles.tiles.size(), 96u / 24 + 2);
  EXPECT_EQ(tiles.tiles[0].segment_count, 12);
  EXPECT_EQ(tiles.tiles[0].shared_positions, 96);
}

TEST(CutIntoTiles, KeepsSequencesApartThatShareNothing) {
  AttentionBatch batch;
  for (int i = 0; i < 3; ++i) batch.AddRun({}, 2);
  Tiles tiles;
  CutIntoTiles(batch.Plan(), 24, tiles);
  EXPECT_EQ(tiles.tiles.size(), 3u);
}

TEST(CutIntoTiles, OfAnEmptyPlanIsNothing) {
  Tiles tiles;
  CutIntoTiles(Branches(5, {}).Plan(), 4, tiles);
  CutIntoTiles({}, 4, tiles);
  EXPECT_TRUE(tiles.tiles.empty());
  EXPECT_TRUE(tiles.segments.empty());
}

}  // namespace
}  // namespace sysone
