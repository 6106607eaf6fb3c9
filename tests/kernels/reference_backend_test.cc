// The oracle itself, against numbers worked out by hand.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace sysone {
namespace {

RowReader Rows(std::vector<float> values, int64_t cols) {
  return [values, cols](int64_t first, int64_t count, float* out) {
    std::copy_n(values.begin() + first * cols, count * cols, out);
  };
}

class ReferenceBackendTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tensor> Upload(const std::vector<float>& values, int64_t cols) {
    const auto rows = static_cast<int32_t>(std::ssize(values) / cols);
    auto tensor = backend_->NewTensor(rows, cols);
    backend_->Upload(values, rows, *tensor);
    return tensor;
  }
  std::vector<float> Read(const Tensor& tensor, int32_t rows, int64_t cols) {
    std::vector<float> out(static_cast<size_t>(rows * cols));
    backend_->Download(tensor, rows, out);
    return out;
  }
  // An operand back as a tensor: a product with the identity.
  std::vector<float> Read(const Operand& operand, int32_t rows, int64_t cols) {
    std::vector<float> identity(static_cast<size_t>(cols * cols));
    for (int64_t i = 0; i < cols; ++i) identity[static_cast<size_t>(i * cols + i)] = 1;
    auto out = backend_->NewTensor(rows, cols);
    backend_->MatMul(operand, *backend_->LoadWeight(cols, cols, Rows(identity, cols)), nullptr,
                     rows, *out);
    return Read(*out, rows, cols);
  }

  std::unique_ptr<Backend> backend_ = MakeReferenceBackend(Dtype::kFloat32);
};

TEST_F(ReferenceBackendTest, NormalizesTheRowsOfARange) {
  auto x = Upload({9, 9, 3, 4}, 2);
  auto out = backend_->NewOperand(1, 2);
  backend_->RmsNorm(*x, *backend_->LoadVector(std::vector<float>{1, 2}), 0, {1, 1}, *out);
  const double rms = std::sqrt(12.5);
  const auto got = Read(*out, 1, 2);
  EXPECT_FLOAT_EQ(got[0], static_cast<float>(3 / rms));
  EXPECT_FLOAT_EQ(got[1], static_cast<float>(8 / rms));
}

TEST_F(ReferenceBackendTest, MultipliesByTheTransposedWeightAndAddsBiasOrSum) {
  auto gate = Upload({1e9f, 1e9f, 1e-9f, 2e-9f}, 4);  // silu(g) = g for large g: the operand (1, 2)
  auto x = backend_->NewOperand(1, 2);
  backend_->GatedSilu(*gate, 1, *x);
  auto weight = backend_->LoadWeight(3, 2, Rows({1, 0, 0, 1, 10, 100}, 2));
  auto bias = backend_->LoadVector(std::vector<float>{0.5f, 0, -10});
  auto out = backend_->NewTensor(2, 3);
  backend_->MatMul(*x, *weight, bias.get(), 1, *out);
  EXPECT_EQ(Read(*out, 1, 3), (std::vector<float>{1.5f, 2, 200}));
  auto sum = Upload({7, 7, 7, 1, 2, 3}, 3);
  backend_->MatMulAdd(*x, *weight, {1, 1}, *sum);
  EXPECT_EQ(Read(*sum, 2, 3), (std::vector<float>{7, 7, 7, 2, 4, 213}));
}

TEST_F(ReferenceBackendTest, RotatesPairsHalfAHeadApart) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 4, .scale = 1};
  auto qkv = Upload({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 12);
  // Position 1 turns the first pair by 90 degrees and leaves the second.
  auto rope = backend_->LoadRope(4, std::vector<float>{1, 1, 0, 1}, std::vector<float>{0, 0, 1, 0});
  const std::vector<int32_t> positions = {1}, kv_rows = {0};
  backend_->NormRope(*qkv, shape, *rope, nullptr, nullptr, 0,
                     {.positions = positions, .kv_rows = kv_rows, .runs = {}, .spans = {}});
  EXPECT_EQ(Read(*qkv, 1, 12), (std::vector<float>{-3, 2, 1, 4, -7, 6, 5, 8, 9, 10, 11, 12}));
}

TEST_F(ReferenceBackendTest, AttendsToAllEarlierPositionsOfTheRunAndNoOthers) {
  // Zero keys give equal weights, so each row's result is the mean of the visible values. Two runs
  // share the span of row 0.
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 2, .scale = 1};
  auto qkv = Upload({1, 1, 1, 1, 0, 0, 8, 80, 1, 1, 1, 1, 0, 0, 2, 20, 1, 1, 1, 1, 0, 0, 4, 40}, 8);
  auto store = backend_->NewKvStore(8, shape);
  auto out = backend_->NewOperand(3, 4);
  const std::vector<int32_t> positions = {0, 1, 1}, kv_rows = {5, 2, 7};
  const std::vector<KvSpan> spans = {{5, 1}, {5, 1}, {2, 1}, {5, 1}, {7, 1}};
  const std::vector<AttentionRun> runs = {{0, 1, 0, 0, 1}, {1, 1, 1, 1, 2}, {2, 1, 1, 3, 2}};
  const PassPlan plan{positions, kv_rows, runs, spans};
  backend_->StoreKv(*qkv, shape, plan, *store);
  backend_->Attend(*qkv, shape, plan, *store, *out);
  EXPECT_EQ(Read(*out, 3, 4), (std::vector<float>{8, 80, 8, 80, 5, 50, 5, 50, 6, 60, 6, 60}));
}

TEST_F(ReferenceBackendTest, WeighsValuesBySoftmaxOfTheScaledScores) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0.5f};
  auto qkv = Upload({0, 0, 2, 0, 1, 0, 2, 0, 0, 0, 0, 1}, 6);  // scores of row 1: 0.5 · (4, 0)
  auto store = backend_->NewKvStore(2, shape);
  auto out = backend_->NewOperand(2, 2);
  const std::vector<int32_t> positions = {0, 1};
  const std::vector<KvSpan> spans = {{0, 2}};
  const std::vector<AttentionRun> runs = {{0, 2, 0, 0, 1}};
  const PassPlan plan{positions, positions, runs, spans};
  backend_->StoreKv(*qkv, shape, plan, *store);
  backend_->Attend(*qkv, shape, plan, *store, *out);
  const double p = 1 / (1 + std::exp(-2.0));
  const auto got = Read(*out, 2, 2);
  EXPECT_FLOAT_EQ(got[2], static_cast<float>(p));
  EXPECT_FLOAT_EQ(got[3], static_cast<float>(1 - p));
}

TEST_F(ReferenceBackendTest, ReadsLabelRowsAndSummarizesTheWholeHead) {
  auto x = Upload({1, 0, 0, 2}, 2);
  auto head = backend_->LoadTable(3, 2, Rows({1, 3, 2, 3, 0, 1}, 2));
  std::vector<float> logits(3);
  backend_->LabelLogits(*x, *head, std::vector<int32_t>{0, 1, 1}, std::vector<TokenId>{1, 2, 0},
                        logits);
  EXPECT_EQ(logits, (std::vector<float>{2, 2, 6}));
  std::vector<HeadSummary> summaries(2);
  backend_->SummarizeHead(*x, *head, 2, summaries);
  EXPECT_EQ(summaries[0].argmax, 1);
  EXPECT_EQ(summaries[1].argmax, 0) << "the first of two equal maxima";
  EXPECT_FLOAT_EQ(summaries[0].log_sum_exp,
                  static_cast<float>(std::log(std::exp(1.0) + std::exp(2.0) + 1)));
  EXPECT_FLOAT_EQ(summaries[1].log_sum_exp,
                  static_cast<float>(std::log(2 * std::exp(6.0) + std::exp(2.0))));
}

TEST(ReferenceBackend, RoundsMatricesToBfloat16WhenAsked) {
  auto backend = MakeReferenceBackend(Dtype::kBfloat16);
  // 1 + 2^-8 is half-way between two bfloat16 numbers and goes to the even one; 1 + 3·2^-8 too.
  auto table = backend->LoadTable(1, 2, Rows({1 + 0x1p-8f, 1 + 0x3p-8f}, 2));
  auto out = backend->NewTensor(1, 2);
  backend->Embed(*table, std::vector<TokenId>{0}, *out);
  std::vector<float> got(2);
  backend->Download(*out, 1, got);
  EXPECT_EQ(got, (std::vector<float>{1, 1 + 0x1p-6f}));
}

}  // namespace
}  // namespace sysone
