// The tables of the attention kernels, read as the kernels read them: whatever the plan, each row is in one tile and finds the
// rows of the store that it sees, in order and each once.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_tables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "tests/kernels/attention_batch.h"
#include "worker/read_plan.h"

namespace sysone {
namespace {

constexpr int32_t kNeverWritten = 0x5a5a5a5a;

class Table {
 public:
  Table(const PassPlan& plan, const AttentionLimits& limits, int32_t most_parts = kMostParts)
      : layout_(limits), words_(static_cast<size_t>(layout_.words) + 1, kNeverWritten) {
    AttentionTables(most_parts).Write(plan, limits, std::span(words_).first(words_.size() - 1));
    EXPECT_EQ(words_.back(), kNeverWritten);
  }

  int32_t tiles() const { return words_[0]; }
  const AttentionLayout& layout() const { return layout_; }
  DeviceTile Tile(int32_t i) const { return Entry<DeviceTile>(layout_.tiles, i); }
  DeviceSegment Segment(int32_t i) const { return Entry<DeviceSegment>(layout_.segments, i); }
  DeviceSpan Span(int32_t i) const { return Entry<DeviceSpan>(layout_.spans, i); }

  // Store rows of the run's positions first … end - 1; the first of them lies in span `from`.
  void Append(int32_t first_span, int32_t from, int32_t first, int32_t end,
              std::vector<int32_t>& rows) const {
    const int32_t before = Span(first_span).count;
    for (int32_t p = first, s = from; p < end; ++p) {
      while (Span(s + 1).count - before <= p) ++s;
      ASSERT_LE(Span(s).count - before, p);
      rows.push_back(Span(s).first_row + p - (Span(s).count - before));
    }
  }

  // Those that row i of the segment sees.
  std::vector<int32_t> Seen(const DeviceTile& tile, const DeviceSegment& segment, int32_t i) const {
    const int32_t shared = tile.shared_blocks * kBlockKeys, end = segment.first_position + i + 1;
    const int32_t first_span = Segment(tile.first_segment).first_span;
    std::vector<int32_t> rows;
    Append(first_span, first_span, 0, std::min(shared, end), rows);
    Append(segment.first_span, segment.rest_span, shared, end, rows);
    return rows;
  }

 private:
  template <class T>
  T Entry(int64_t at, int32_t i) const {
    T entry;
    const auto from = static_cast<size_t>(at) + static_cast<size_t>(i) * (sizeof(T) / 4);
    EXPECT_LT(from + sizeof(T) / 4, words_.size());
    std::memcpy(&entry, words_.data() + from, sizeof(T));
    return entry;
  }

  AttentionLayout layout_;
  std::vector<int32_t> words_;
};

std::map<int32_t, std::vector<int32_t>> WantedRows(const PassPlan& plan) {
  std::map<int32_t, std::vector<int32_t>> wanted;
  for (const AttentionRun& run : plan.runs) {
    std::vector<int32_t> rows;
    for (const KvSpan& span : plan.spans.subspan(static_cast<size_t>(run.first_span),
                                                 static_cast<size_t>(run.span_count)))
      for (int32_t i = 0; i < span.count; ++i) rows.push_back(span.first_row + i);
    for (int32_t i = 0; i < run.rows; ++i)
      wanted[run.first_row + i] = {rows.begin(), rows.begin() + run.first_position + i + 1};
  }
  return wanted;
}

// Stages of which some positions are fetched, counted one by one.
int32_t StagesOf(const Table& table, const DeviceTile& tile) {
  constexpr int32_t kStageKeys = kStageBlocks * kBlockKeys;
  const int32_t shared = tile.shared_blocks * kBlockKeys;
  int32_t stages = 0;
  for (int32_t p = tile.first_chunk * kChunkKeys; p < tile.end_chunk * kChunkKeys;
       p += kStageKeys) {
    stages += p < shared;
    for (int32_t s = 0; s < tile.segment_count; ++s) {
      const DeviceSegment segment = table.Segment(tile.first_segment + s);
      stages +=
          std::max(p, shared) < std::min(p + kStageKeys, segment.first_position + segment.rows);
    }
  }
  return stages;
}

// Every chunk of every tile is in one entry; the parts of a tile have numbers behind each other, which no other one has.
void CheckChunks(const Table& table, int32_t most_parts) {
  std::map<int32_t, int32_t> chunks_of;  // by first segment: those that were found
  std::map<int32_t, int32_t> parts;      // by number: first segments
  for (int32_t t = 0; t < table.tiles(); ++t) {
    const DeviceTile tile = table.Tile(t);
    int32_t seen = 0;
    for (int32_t s = 0; s < tile.segment_count; ++s) {
      const DeviceSegment segment = table.Segment(tile.first_segment + s);
      seen = std::max(seen, segment.first_position + segment.rows);
    }
    EXPECT_EQ(tile.chunks, (seen + kChunkKeys - 1) / kChunkKeys);
    if (tile.first_part < 0) {
      EXPECT_EQ(tile.first_chunk, 0);
      EXPECT_EQ(tile.end_chunk, tile.chunks);
    } else {
      EXPECT_GT(tile.chunks, 1);
      EXPECT_EQ(tile.end_chunk, tile.first_chunk + 1);
      EXPECT_LE(tile.first_part + tile.chunks, most_parts);
      EXPECT_TRUE(parts.emplace(tile.first_part + tile.first_chunk, tile.first_segment).second);
    }
    chunks_of[tile.first_segment] += tile.end_chunk - tile.first_chunk;
  }
  for (int32_t t = 0; t < table.tiles(); ++t)
    EXPECT_EQ(chunks_of[table.Tile(t).first_segment], table.Tile(t).chunks);
  EXPECT_EQ(parts.empty() ? 0 : parts.rbegin()->first + 1, std::ssize(parts));
}

void CheckTable(const PassPlan& plan, const AttentionLimits& limits,
                int32_t most_parts = kMostParts) {
  const Table table(plan, limits, most_parts);
  CheckChunks(table, most_parts);
  ASSERT_LE(table.tiles(), table.layout().max_tiles);
  std::map<int32_t, std::vector<int32_t>> seen;
  int32_t stages_before = INT32_MAX;
  for (int32_t t = 0; t < table.tiles(); ++t) {
    const DeviceTile tile = table.Tile(t);
    EXPECT_LE(StagesOf(table, tile), stages_before);
    stages_before = StagesOf(table, tile);
    if (tile.first_chunk > 0) continue;
    int32_t rows = 0;
    for (int32_t s = 0; s < tile.segment_count; ++s) {
      ASSERT_LT(tile.first_segment + s, table.layout().max_segments);
      const DeviceSegment segment = table.Segment(tile.first_segment + s);
      EXPECT_EQ(segment.tile_row, rows);
      rows += segment.rows;
      for (int32_t i = 0; i < segment.rows; ++i)
        EXPECT_TRUE(seen.emplace(segment.first_row + i, table.Seen(tile, segment, i)).second)
            << "row " << segment.first_row + i << " is in two tiles";
    }
    EXPECT_EQ(rows, tile.rows);
    EXPECT_GE(rows, 1);
    EXPECT_LE(rows, kTileRows);
  }
  EXPECT_EQ(seen, WantedRows(plan));
}

// With exact limits, and in a table that has room for more.
void CheckTables(const PassPlan& plan) {
  const AttentionLimits needed = LimitsOf(plan);
  CheckTable(plan, needed);
  CheckTable(plan, {needed.rows + 5, needed.runs + 3, needed.spans + 1, true});
}

AttentionBatch Branches(int32_t prefix_rows, const std::vector<int32_t>& branches) {
  AttentionBatch batch;
  const auto prefix = batch.AddRun({}, prefix_rows);
  for (const int32_t rows : branches) batch.AddRun(prefix, rows);
  return batch;
}

TEST(AttentionTables, HoldEveryRowOnceWithAllItSees) {
  for (int32_t rows = 1; rows <= 66; ++rows) CheckTables(Branches(rows, {}).Plan());
  for (const int32_t prefix : {1, 15, 16, 17, 63, 64, 65, 100})
    CheckTables(Branches(prefix, {1, 5, 1, 16, 17, 1, 1, 40, 3}).Plan());
}

TEST(AttentionTables, OfAnEmptyPlanHaveNoTiles) {
  EXPECT_EQ(Table({}, {}).tiles(), 0);
  EXPECT_EQ(Table({}, {.rows = 64, .runs = 64, .spans = 10}).tiles(), 0);
  EXPECT_EQ(AttentionLayout({}).max_tiles, 0);
}

TEST(AttentionTables, LeaveOutRunsWithoutRows) {
  AttentionBatch batch = Branches(20, {3});
  batch.runs.insert(batch.runs.begin(), {0, 0, 0, 0, 0});
  EXPECT_EQ(LimitsOf(batch.Plan()).runs, 2);
  CheckTables(batch.Plan());
}

TEST(AttentionTables, HaveASizeThatDependsOnTheLimitsAlone) {
  const AttentionLimits limits{.rows = 128, .runs = 20, .spans = 50};
  EXPECT_EQ(AttentionLayout(limits).words, AttentionLayout(limits).words);
  EXPECT_EQ(AttentionLayout(limits).max_tiles, 20 + 128 / kTileRows);
  EXPECT_EQ(AttentionLayout({.rows = 8, .runs = 8, .spans = 50}).max_tiles, 8);
}

TEST(AttentionTablesDeathTest, RefuseAPlanThatDoesNotFit) {
  const AttentionBatch batch = Branches(20, {3});
  AttentionLimits limits = LimitsOf(batch.Plan());
  --limits.spans;
  EXPECT_DEATH(Table(batch.Plan(), limits), "has no room for its plan");
}

TEST(AttentionTablesDeathTest, RefuseSpansThatAreTooShort) {
  AttentionBatch batch = Branches(20, {3});
  --batch.spans.back().count;
  EXPECT_DEATH(Table(batch.Plan(), LimitsOf(batch.Plan())), "shorter than its positions");
}

TEST(AttentionTables, PutShortBranchesOfALongPrefixTogether) {
  const AttentionBatch batch = Branches(1024, std::vector<int32_t>(24, 2));
  const Table table(batch.Plan(), LimitsOf(batch.Plan()));
  // Half of the prefix's tiles have one chunk, half have two, those of the branches three.
  ASSERT_EQ(table.tiles(), 32 + 32 * 2 + 24 * 2 / kTileRows * 3);
  for (int32_t t = 0; t < table.tiles(); ++t) {
    const DeviceTile tile = table.Tile(t);
    if (tile.chunks < 3) continue;
    EXPECT_EQ(tile.segment_count, 8);
    EXPECT_EQ(tile.shared_blocks, 1024 / kBlockKeys);
  }
}

// The plan of a question about `cached` rows.
struct Question {
  Question(int32_t cached, int32_t rows) {
    batch.AddRun(batch.AddRun({}, cached), rows);
    run = batch.runs.back();
  }
  PassPlan Plan() const {
    PassPlan plan = batch.Plan();
    plan.runs = {&run, 1};
    return plan;
  }
  AttentionBatch batch;
  AttentionRun run;
};

TEST(AttentionTables, CutTilesIntoChunksWhereARowSeesMoreThanOne) {
  for (const int32_t seen : {1, kChunkKeys - 1, kChunkKeys}) {
    const Question question(seen - 1, 1);
    EXPECT_FALSE(LimitsOf(question.Plan()).chunks) << seen;
    EXPECT_EQ(Table(question.Plan(), LimitsOf(question.Plan())).tiles(), 1) << seen;
  }
  for (const int32_t chunks : {2, 3, 16}) {
    for (const int32_t seen : {(chunks - 1) * kChunkKeys + 1, chunks * kChunkKeys}) {
      const Question question(seen - 1, 1);
      EXPECT_TRUE(LimitsOf(question.Plan()).chunks);
      EXPECT_EQ(Table(question.Plan(), LimitsOf(question.Plan())).tiles(), chunks) << seen;
    }
  }
  // Three tiles, the first of which ends where the second chunk begins.
  const Question question(kChunkKeys - 16, 40);
  EXPECT_EQ(Table(question.Plan(), LimitsOf(question.Plan())).tiles(), 1 + 2 + 2);
  for (const int32_t most_parts : {0, 1, 2, 3, kMostParts}) {
    CheckTable(question.Plan(), LimitsOf(question.Plan()), most_parts);
    const Table table(question.Plan(), LimitsOf(question.Plan()), most_parts);
    EXPECT_EQ(table.tiles(), 3 + std::min(2, most_parts / 2)) << most_parts;
  }
}

TEST(AttentionTables, KeepTilesWholeWhenThereAreNoPartsLeft) {
  const AttentionBatch batch = Branches(4000, {});
  CheckTables(batch.Plan());
  const Table table(batch.Plan(), LimitsOf(batch.Plan()));
  EXPECT_LE(table.tiles(), 250 + kMostParts);
  EXPECT_GT(table.tiles(), 250 + kMostParts / 2);
}

// Their own keys would be fetched one branch after the other.
TEST(AttentionTables, KeepBranchesApartWhoseCommonBeginningIsShort) {
  const AttentionBatch batch = Branches(128, std::vector<int32_t>(8, 2));
  const Table table(batch.Plan(), LimitsOf(batch.Plan()));
  EXPECT_EQ(table.tiles(), 128 / kTileRows + 8 / 2);
  for (int32_t t = 0; t < table.tiles(); ++t) EXPECT_LE(table.Tile(t).segment_count, 2);
}

TEST(AttentionTables, KeepSequencesApartThatShareNothing) {
  AttentionBatch batch;
  for (int i = 0; i < 3; ++i) batch.AddRun({}, 2);
  EXPECT_EQ(Table(batch.Plan(), LimitsOf(batch.Plan())).tiles(), 3);
}

TEST(AttentionTables, ServeTheReadsOfManyBranches) {
  AttentionBatch batch = Branches(300, std::vector<int32_t>(255, 3));
  std::vector<int32_t> reads;
  for (int32_t b = 0; b < 255; ++b) reads.push_back(300 + 3 * b + 2);
  ReadPlan plan;
  plan.Build(batch.Plan(), reads);
  CheckTables(plan.plan());
  const AttentionLimits limits = LimitsOf(plan.plan());
  EXPECT_EQ(limits.runs, 255);
  EXPECT_EQ(limits.spans, std::ssize(batch.spans));
  EXPECT_EQ(Table(plan.plan(), limits).tiles(), 255 / 5);  // five stages are shared, one is not
}

TEST(AttentionTables, HoldRandomPlans) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    AttentionBatch batch;
    std::vector<std::vector<KvSpan>> paths{{}};
    for (int32_t run = below(12); run >= 0; --run) {
      auto before = paths[static_cast<size_t>(below(static_cast<uint32_t>(paths.size())))];
      paths.push_back(batch.AddRun(before, 1 + below(round % 3 == 0 ? 120 : 9)));
    }
    if (round % 2 == 0) batch.Scatter(static_cast<uint32_t>(round));
    SCOPED_TRACE(round);
    CheckTables(batch.Plan());
    std::vector<int32_t> reads;
    for (int32_t row = below(5); row < batch.rows(); row += 1 + below(9)) reads.push_back(row);
    ReadPlan plan;
    plan.Build(batch.Plan(), reads);
    CheckTables(plan.plan());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sysone
