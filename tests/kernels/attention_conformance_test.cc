// Attention of every backend against the reference, over head sizes, group sizes, and packed runs
// that share spans.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tests/kernels/attention_batch.h"
#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"

namespace sysone {
namespace {

double LargestNorm(const std::vector<float>& rows, int64_t cols, int64_t first, int64_t end,
                   int64_t dim) {
  double largest = 0;
  for (int64_t r = 0; r < std::ssize(rows) / cols; ++r) {
    for (int64_t c = first; c < end; c += dim) {
      double squares = 0;
      for (int64_t i = 0; i < dim; ++i)
        squares += std::pow(rows[static_cast<size_t>(r * cols + c + i)], 2);
      largest = std::max(largest, std::sqrt(squares));
    }
  }
  return largest;
}

class AttentionConformance : public VariantTest {
 protected:
  std::vector<float> Run(Backend& backend, const AttentionShape& shape, const AttentionBatch& batch,
                         const std::vector<float>& qkv) {
    auto store = backend.NewKvStore(batch.store_rows(), shape);
    return Attend(backend, shape, batch, qkv, *store);
  }

  void Check(const AttentionShape& shape, const AttentionBatch& batch) {
    SCOPED_TRACE(::testing::Message() << shape.heads << " on " << shape.kv_heads << " heads of "
                                      << shape.head_dim << ", " << batch.rows() << " rows");
    Data data(static_cast<uint32_t>(shape.qkv_cols() + batch.rows()));
    auto qkv = data.Normal(batch.rows() * shape.qkv_cols());
    // A backend that keeps keys and values in bfloat16 may round queries, too, so all of them are given rounded; and the weights
    // of the values, on both sides of the division by their sum.
    const bool rounds = subject_->KvRowBytes(shape) == 4 * int64_t{shape.kv_cols()};
    if (rounds) qkv = TableAs("bfloat16", qkv);
    // |q·k| ≤ |q||k|. A score is a sum of head_dim products of a scaled query (one rounding), minus
    // the largest score (one more), and off by `score`; a weight is off by twice that (its own and
    // the largest one's), by 2^-22 of exp, and by as much for every later block that rescales it.
    // The result is a mean of values under such weights, summed over the keys.
    const int64_t q_cols = shape.q_cols(), kv_cols = shape.kv_cols(), cols = shape.qkv_cols();
    const double q = LargestNorm(qkv, cols, 0, q_cols, shape.head_dim);
    const double k = LargestNorm(qkv, cols, q_cols, q_cols + kv_cols, shape.head_dim);
    double value = 0;
    for (size_t i = 0; i < qkv.size(); ++i)
      if (static_cast<int64_t>(i) % cols >= q_cols + kv_cols)
        value = std::max(value, std::abs(static_cast<double>(qkv[i])));
    const double longest = *std::ranges::max_element(batch.positions) + 1;
    const double score = (kLambda * std::sqrt(shape.head_dim) + 2) * kU * shape.scale * q * k;
    const double weight = 2 * score + (2 + longest / 64) * 0x1p-22;
    const double tolerance =
        (2 * weight + kLambda * std::sqrt(longest) * kU + (rounds ? 2 * kU16 : 0)) * value +
        OperandError(std::vector<double>(static_cast<size_t>(q_cols), value), q_cols)[0];
    const auto want = ToDouble(Run(*reference_, shape, batch, qkv));
    EXPECT_TRUE(Within(Run(*subject_, shape, batch, qkv), want,
                       std::vector<double>(want.size(), tolerance)));
  }

  static AttentionShape Shape(int32_t kv_heads, int32_t group, int32_t dim) {
    return {kv_heads * group, kv_heads, dim, 1 / std::sqrt(static_cast<float>(dim))};
  }
};

TEST_P(AttentionConformance, AgreesOverHeadSizesAndGroups) {
  AttentionBatch batch;
  batch.AddRun({}, 70);
  for (const int32_t dim : {16, 32})
    for (const int32_t group : {1, 3, 7, 8}) Check(Shape(2, group, dim), batch);
  for (const int32_t dim : {64, 80, 128}) {
    Check(Shape(2, 1, dim), batch);
    Check(Shape(1, 3, dim), batch);
  }
  Check(Shape(1, 7, 64), batch);
  Check(Shape(1, 8, 64), batch);
  Check(Shape(1, 2, 256), batch);
}

TEST_P(AttentionConformance, AgreesOverLengthsAroundTheBlocks) {
  for (int32_t rows = 1; rows <= 20; ++rows) {
    AttentionBatch batch;
    batch.AddRun({}, rows);
    Check(Shape(1, 3, 16), batch);
  }
  for (const int32_t rows : {47, 48, 49, 63, 64, 65, 127, 128, 129, 200}) {
    AttentionBatch batch;
    batch.AddRun({}, rows);
    Check(Shape(1, 1, 18), batch);
  }
}

TEST_P(AttentionConformance, AgreesForBranchesOverOneSharedPrefix) {
  AttentionBatch batch;
  const auto prefix = batch.AddRun({}, 77);
  for (const int32_t rows : {1, 5, 60, 2, 1}) batch.AddRun(prefix, rows);
  batch.AddRun({}, 3);
  batch.Scatter(5);
  Check(Shape(3, 3, 32), batch);
}

TEST_P(AttentionConformance, AgreesForManyQueriesOnOneHead) {
  AttentionBatch batch;
  batch.AddRun({}, 66);
  Check(Shape(1, 64, 16), batch);
}

TEST_P(AttentionConformance, LargeScoresDoNotOverflow) {
  AttentionBatch batch;
  batch.AddRun({}, 2);
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 1};
  // Scores of the second row: 1e4 and -1e4: all weight is on the first key, then on the second.
  const auto out = Run(*subject_, shape, batch, {0, 0, 1, 0, 3, 4, 1e4f, 0, -1, 0, 5, 6});
  const std::vector<double> first = {3, 4, 3, 4}, second = {3, 4, 5, 6};
  // An operand's error, and no other: the values have few bits.
  EXPECT_TRUE(Within(out, first, OperandError(first, 2)));
  const auto other = Run(*subject_, shape, batch, {0, 0, 1, 0, 3, 4, -1e4f, 0, -1, 0, 5, 6});
  EXPECT_TRUE(Within(other, second, OperandError(second, 2)));
}

TEST_P(AttentionConformance, ARowDoesNotSeeALaterOneThatIsNotANumber) {
  AttentionBatch batch;
  batch.AddRun({}, 10);
  const AttentionShape shape = Shape(1, 1, 16);
  Data data(1);
  auto qkv = data.Normal(10 * 48);
  const auto clean = Run(*subject_, shape, batch, qkv);
  std::fill(qkv.end() - 48, qkv.end(), std::nanf(""));
  auto dirty = Run(*subject_, shape, batch, qkv);
  EXPECT_TRUE(std::isnan(dirty.back()));
  EXPECT_TRUE(SameBits(std::span(dirty).first(9 * 16), std::span(clean).first(9 * 16)));
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionConformance, ::testing::ValuesIn(AllVariants()),
                         VariantName);

}  // namespace
}  // namespace sysone
