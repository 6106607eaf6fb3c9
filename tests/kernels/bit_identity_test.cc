// The promise in backend.h, to the bit: what a row gives depends neither on its batch mates, nor on its place among them, nor on how
// its sequence was cut into passes, runs and spans, nor on where its keys lie, nor on the number of threads.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/attention_batch.h"
#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"

namespace sysone {
namespace {

std::span<const float> RowsOf(const std::vector<float>& values, int64_t first, int64_t count,
                              int64_t cols) {
  return std::span(values).subspan(static_cast<size_t>(first * cols),
                                   static_cast<size_t>(count * cols));
}

std::vector<float> Gathered(const std::vector<float>& values, const std::vector<int32_t>& rows,
                            int64_t cols) {
  std::vector<float> out;
  for (const int64_t r : rows)
    out.insert(out.end(), values.begin() + r * cols, values.begin() + (r + 1) * cols);
  return out;
}

class BitIdentity : public VariantTest {};

TEST_P(BitIdentity, AProductsRowIsTheSameInEveryBatch) {
  constexpr int64_t kRows = 401;
  Data data(1);
  for (const auto& [in_cols, out_cols] : {std::pair{304, 144}, {1100, 70}, {576, 33}}) {
    const auto x = data.Normal(kRows * in_cols), bias = data.Normal(out_cols);
    auto weight =
        subject_->LoadWeight(out_cols, in_cols, ReadFrom(data.Normal(out_cols * in_cols), in_cols));
    auto bias_vector = subject_->LoadVector(bias);
    const auto product = [&](const std::vector<float>& rows) {
      const auto count = static_cast<int32_t>(std::ssize(rows) / in_cols);
      auto out = subject_->NewTensor(count, out_cols);
      subject_->MatMul(*MakeOperand(*subject_, rows, in_cols), *weight, bias_vector.get(), count,
                       *out);
      return Read(*subject_, *out, count, out_cols);
    };
    std::vector<float> alone;
    for (int64_t r = 0; r < kRows; ++r) {
      const auto row = RowsOf(x, r, 1, in_cols);
      const auto result = product({row.begin(), row.end()});
      alone.insert(alone.end(), result.begin(), result.end());
    }
    std::vector<int64_t> batches(70);
    std::iota(batches.begin(), batches.end(), 1);
    batches.insert(batches.end(), {100, 191, 192, 193, 300, 385, kRows});
    for (const int64_t rows : batches) {
      const auto part = RowsOf(x, kRows - rows, rows, in_cols);
      ASSERT_TRUE(SameBits(product({part.begin(), part.end()}),
                           RowsOf(alone, kRows - rows, rows, out_cols)))
          << rows << " rows, " << in_cols << " to " << out_cols;
    }
  }
}

TEST_P(BitIdentity, AnAddedProductsRowIsTheSameAnywhere) {
  constexpr int64_t kIn = 112, kOut = 50, kRows = 40;
  Data data(2);
  const auto x = data.Normal(kRows * kIn), start = data.Normal(kRows * kOut);
  auto weight = subject_->LoadWeight(kOut, kIn, ReadFrom(data.Normal(kOut * kIn), kIn));
  auto whole = MakeTensor(*subject_, start, kOut);
  subject_->MatMulAdd(*MakeOperand(*subject_, x, kIn), *weight, {0, kRows}, *whole);
  for (const int32_t slice : {1, 3, 16, 39}) {
    auto parts = MakeTensor(*subject_, start, kOut);
    for (int32_t first = 0; first < kRows; first += slice) {
      const int32_t count = std::min<int32_t>(slice, kRows - first);
      const auto rows = RowsOf(x, first, count, kIn);
      subject_->MatMulAdd(*MakeOperand(*subject_, {rows.begin(), rows.end()}, kIn), *weight,
                          {first, count}, *parts);
    }
    EXPECT_TRUE(
        SameBits(Read(*subject_, *parts, kRows, kOut), Read(*subject_, *whole, kRows, kOut)))
        << slice;
  }
}

TEST_P(BitIdentity, AnotherNumberOfThreadsChangesNothing) {
  constexpr int64_t kIn = 304, kOut = 300, kRows = 50;
  Data data(3);
  const auto x = data.Normal(kRows * kIn), w = data.Normal(kOut * kIn),
             head = data.Normal(500 * kIn);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    auto backend = MakeVariant(GetParam(), threads);
    auto out = backend->NewTensor(kRows, kOut);
    backend->MatMul(*MakeOperand(*backend, x, kIn),
                    *backend->LoadWeight(kOut, kIn, ReadFrom(w, kIn)), nullptr, kRows, *out);
    auto values = Read(*backend, *out, kRows, kOut);
    std::vector<HeadSummary> summaries(3);
    backend->SummarizeHead(*MakeTensor(*backend, x, kIn),
                           *backend->LoadTable(500, kIn, ReadFrom(head, kIn)), 3, summaries);
    for (const HeadSummary& summary : summaries) values.push_back(summary.log_sum_exp);
    results.push_back(values);
  }
  EXPECT_TRUE(SameBits(results[0], results[1]));
  EXPECT_TRUE(SameBits(results[0], results[2]));
}

TEST_P(BitIdentity, ALabelsLogitIsTheSameAmongOthers) {
  constexpr int64_t kCols = 100;
  Data data(4);
  auto x = MakeTensor(*subject_, data.Normal(2 * kCols), kCols);
  auto head = subject_->LoadTable(30, kCols, ReadFrom(data.Normal(30 * kCols), kCols));
  std::vector<TokenId> ids(60);
  std::vector<int32_t> row_of(60);
  for (int32_t i = 0; i < 60; ++i) {
    ids[static_cast<size_t>(i)] = i % 30;
    row_of[static_cast<size_t>(i)] = i / 30;
  }
  std::vector<float> all(60), alone(60);
  subject_->LabelLogits(*x, *head, row_of, ids, all);
  for (size_t i = 0; i < 60; ++i)
    subject_->LabelLogits(*x, *head, std::span(row_of).subspan(i, 1), std::span(ids).subspan(i, 1),
                          std::span(alone).subspan(i, 1));
  EXPECT_TRUE(SameBits(all, alone));
}

class AttentionBitIdentity : public VariantTest {
 protected:
  static constexpr int32_t kLength = 150;
  static constexpr AttentionShape kShape = {
      .heads = 6, .kv_heads = 2, .head_dim = 16, .scale = 0.25f};

  void SetUp() override {
    VariantTest::SetUp();
    qkv_ = Data(5).Normal(kLength * kShape.qkv_cols());
    AttentionBatch batch;
    batch.AddRun({}, kLength);
    auto store = subject_->NewKvStore(kLength, kShape);
    whole_ = Attend(*subject_, kShape, batch, qkv_, *store);
  }

  std::vector<float> Slice(int32_t first, int32_t count) {
    const auto rows = RowsOf(qkv_, first, count, kShape.qkv_cols());
    return {rows.begin(), rows.end()};
  }

  std::vector<float> qkv_;    // of one sequence
  std::vector<float> whole_;  // its result as one run
};

TEST_P(AttentionBitIdentity, APrefixMayComeInAnEarlierPassCutAnywhere) {
  // A device has a queue; an emulated one takes too long for all of them.
  const int32_t step = subject_->Queue() == nullptr ? 1 : 19;
  for (int32_t cut = 1; cut < kLength; cut += step) {
    auto store = subject_->NewKvStore(kLength, kShape);
    AttentionBatch before, after;
    const auto prefix = before.AddRun({}, cut);
    after.next_store_row = cut;
    after.AddRun(prefix, kLength - cut);
    auto result = Attend(*subject_, kShape, before, Slice(0, cut), *store);
    const auto rest = Attend(*subject_, kShape, after, Slice(cut, kLength - cut), *store);
    result.insert(result.end(), rest.begin(), rest.end());
    ASSERT_TRUE(SameBits(result, whole_)) << cut;
  }
}

TEST_P(AttentionBitIdentity, RunsOfOnePassMayCutTheSequenceAnywhere) {
  for (const int32_t step : {1, 7, 16, 50, 64, 65, 149}) {
    AttentionBatch batch;
    std::vector<KvSpan> seen;
    for (int32_t first = 0; first < kLength; first += step)
      seen = batch.AddRun(seen, std::min(step, kLength - first));
    for (const bool scatter : {false, true}) {
      if (scatter) batch.Scatter(static_cast<uint32_t>(step));
      auto store = subject_->NewKvStore(batch.store_rows(), kShape);
      ASSERT_TRUE(SameBits(Attend(*subject_, kShape, batch, qkv_, *store), whole_))
          << "step " << step << (scatter ? ", scattered" : "");
    }
  }
}

TEST_P(AttentionBitIdentity, TheOrderOfSequencesInABatchDoesNotMatter) {
  const std::vector<int32_t> lengths = {3, 40, 1, 65, 20};
  std::vector<int32_t> order = {0, 1, 2, 3, 4};
  Data data(6);
  for (int round = 0; round < 5; ++round) {
    data.Shuffle(order);
    AttentionBatch batch;
    std::vector<int32_t> rows;  // of qkv_, for each batch row: every sequence begins at its row 0
    for (const int32_t sequence : order) {
      batch.AddRun({}, lengths[static_cast<size_t>(sequence)]);
      for (int32_t i = 0; i < lengths[static_cast<size_t>(sequence)]; ++i) rows.push_back(i);
    }
    batch.Scatter(static_cast<uint32_t>(round));
    auto store = subject_->NewKvStore(batch.store_rows(), kShape);
    ASSERT_TRUE(
        SameBits(Attend(*subject_, kShape, batch, Gathered(qkv_, rows, kShape.qkv_cols()), *store),
                 Gathered(whole_, rows, kShape.q_cols())));
  }
}

TEST_P(AttentionBitIdentity, BranchesOverOnePrefixAreWhatTheyWouldBeAlone) {
  // Every branch continues the prefix with the next rows of the sequence, so each must give what the whole sequence gives.
  for (const int32_t prefix_rows : {1, 20, 63, 64, 100}) {
    AttentionBatch batch;
    std::vector<int32_t> rows;  // of qkv_, for each batch row
    const auto add = [&](const std::vector<KvSpan>& before, int32_t first, int32_t count) {
      for (int32_t i = 0; i < count; ++i) rows.push_back(first + i);
      return batch.AddRun(before, count);
    };
    const auto prefix = add({}, 0, prefix_rows);
    for (const int32_t count : {1, 2, 1, 1, 7, 30, 3, 50, 1, 16, 5, 1})
      add(prefix, prefix_rows, count);
    // A branch of a branch shares more with the one before it than with the others.
    const auto branch = add(prefix, prefix_rows, 10);
    for (int i = 0; i < 3; ++i) add(branch, prefix_rows + 10, 4);
    for (const bool scatter : {false, true}) {
      if (scatter) batch.Scatter(static_cast<uint32_t>(prefix_rows));
      auto store = subject_->NewKvStore(batch.store_rows(), kShape);
      ASSERT_TRUE(SameBits(
          Attend(*subject_, kShape, batch, Gathered(qkv_, rows, kShape.qkv_cols()), *store),
          Gathered(whole_, rows, kShape.q_cols())))
          << "prefix of " << prefix_rows << (scatter ? ", scattered" : "");
    }
  }
}

TEST_P(AttentionBitIdentity, AFewRowsMayBeAttendedAlone) {
  AttentionBatch all, few;
  const auto spans = all.AddRun({}, kLength);
  auto store = subject_->NewKvStore(kLength, kShape);
  subject_->StoreKv(*MakeTensor(*subject_, qkv_, kShape.qkv_cols()), kShape, all.Plan(), *store);
  const std::vector<int32_t> rows = {149, 0, 63, 64, 65, 100, 100};
  few.spans = spans;
  for (const int32_t row : rows) {
    few.runs.push_back({few.rows(), 1, row, 0, 1});
    few.positions.push_back(row);
  }
  auto out = subject_->NewOperand(few.rows(), kShape.q_cols());
  subject_->Attend(
      *MakeTensor(*subject_, Gathered(qkv_, rows, kShape.qkv_cols()), kShape.qkv_cols()), kShape,
      few.Plan(), *store, *out);
  EXPECT_TRUE(SameBits(Read(*subject_, *out, few.rows(), kShape.q_cols()),
                       Gathered(whole_, rows, kShape.q_cols())));
}

INSTANTIATE_TEST_SUITE_P(Backends, BitIdentity, ::testing::ValuesIn(AllVariants()), VariantName);
INSTANTIATE_TEST_SUITE_P(Backends, AttentionBitIdentity, ::testing::ValuesIn(AllVariants()),
                         VariantName);

}  // namespace
}  // namespace sysone
