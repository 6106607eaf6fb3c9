// Embedding, norms, rotation, gate and read-out of every backend against the reference.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"

namespace sysone {
namespace {

// Remainders of every vector width, then sizes of models.
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes(66);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {112, 144, 576, 1536});
  return sizes;
}

std::vector<double> Times(double factor, const std::vector<double>& values) {
  std::vector<double> out;
  for (const double value : values) out.push_back(factor * std::abs(value));
  return out;
}

std::vector<double> Plus(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

class RowOpsConformance : public VariantTest {
 protected:
  // Σx² is a sum of n positive terms with at most n/4 + 8 roundings each (four chains and a tree),
  // and its root halves the relative error; five more operations follow. The reference adds its
  // one.
  static double NormError(int64_t n) { return (static_cast<double>(n) / 8 + 10) * kU; }
};

TEST_P(RowOpsConformance, EmbedReadsRowsOfTheTable) {
  for (const int64_t cols : Sizes()) {
    Data data(static_cast<uint32_t>(cols));
    const auto values = data.Normal(9 * cols);
    const std::vector<TokenId> ids = {8, 0, 3, 3, 7};
    std::vector<std::vector<float>> rows;
    for (Backend* backend : {subject_.get(), reference_.get()}) {
      auto out = backend->NewTensor(5, cols);
      backend->Embed(*backend->LoadTable(9, cols, ReadFrom(values, cols)), ids, *out);
      rows.push_back(Read(*backend, *out, 5, cols));
    }
    EXPECT_TRUE(SameBits(rows[0], rows[1])) << cols;
  }
}

TEST_P(RowOpsConformance, RmsNormAndFinalNormAgree) {
  for (const int64_t cols : Sizes()) {
    Data data(static_cast<uint32_t>(cols));
    const auto x = data.Normal(6 * cols, 3), weight = data.Normal(cols);
    const auto norm = [&](Backend& backend) {
      auto out = backend.NewOperand(4, cols);
      backend.RmsNorm(*MakeTensor(backend, x, cols), *backend.LoadVector(weight), 1e-5f, {2, 4},
                      *out);
      return Read(backend, *out, 4, cols);
    };
    const auto final_norm = [&](Backend& backend) {
      auto out = backend.NewTensor(6, cols);
      backend.FinalNorm(*MakeTensor(backend, x, cols), *backend.LoadVector(weight), 1e-5f, 6, *out);
      return Read(backend, *out, 6, cols);
    };
    const auto want = ToDouble(norm(*reference_)), want_final = ToDouble(final_norm(*reference_));
    EXPECT_TRUE(
        Within(norm(*subject_), want, Plus(Times(NormError(cols), want), OperandError(want, cols))))
        << cols;
    EXPECT_TRUE(Within(final_norm(*subject_), want_final, Times(NormError(cols), want_final)))
        << cols;
  }
}

TEST_P(RowOpsConformance, ANormOfZerosIsZeros) {
  auto out = subject_->NewTensor(1, 20);
  subject_->FinalNorm(*MakeTensor(*subject_, std::vector<float>(20), 20),
                      *subject_->LoadVector(std::vector<float>(20, 2)), 1e-6f, 1, *out);
  EXPECT_TRUE(SameBits(Read(*subject_, *out, 1, 20), std::vector<float>(20)));
}

TEST_P(RowOpsConformance, NormRopeAgreesWithAndWithoutNorms) {
  const std::vector<int32_t> positions = {0, 5, 1, 30, 2}, kv_rows = {0, 1, 2, 3, 4};
  const PassPlan plan{.positions = positions, .kv_rows = kv_rows, .runs = {}, .spans = {}};
  for (const int32_t dim : {2, 6, 16, 18, 32, 64, 80, 128}) {
    const AttentionShape shape{.heads = 3, .kv_heads = 1, .head_dim = dim, .scale = 1};
    const int64_t half = dim / 2;
    std::vector<float> cos, sin;
    for (int64_t i = 0; i < 31 * half; ++i) {
      cos.push_back(std::cos(static_cast<float>(i) * 0.37f));
      sin.push_back(std::sin(static_cast<float>(i) * 0.37f));
    }
    Data data(static_cast<uint32_t>(dim));
    const auto qkv = data.Normal(5 * shape.qkv_cols(), 2), q_weight = data.Normal(dim),
               k_weight = data.Normal(dim);
    for (const bool with_norms : {false, true}) {
      const auto run = [&](Backend& backend) {
        auto tensor = MakeTensor(backend, qkv, shape.qkv_cols());
        auto q_norm = with_norms ? backend.LoadVector(q_weight) : nullptr;
        auto k_norm = with_norms ? backend.LoadVector(k_weight) : nullptr;
        backend.NormRope(*tensor, shape, *backend.LoadRope(dim, cos, sin), q_norm.get(),
                         k_norm.get(), 1e-6f, plan);
        return Read(backend, *tensor, 5, shape.qkv_cols());
      };
      const auto want = ToDouble(run(*reference_));
      // A rotation keeps the length of a pair; each of its results has three roundings relative to
      // |a| + |b|, at most √2 lengths, on top of what the norm leaves on both sides.
      std::vector<double> tolerance(want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        const auto column = static_cast<int64_t>(i) % shape.qkv_cols();
        if (column >= shape.q_cols() + shape.kv_cols()) continue;  // values are not touched
        const size_t partner =
            column % dim < half ? i + static_cast<size_t>(half) : i - static_cast<size_t>(half);
        const double error = 4 * kU + (with_norms ? 2 * NormError(dim) : 0);
        tolerance[i] = error * std::sqrt(2.0) * std::hypot(want[i], want[partner]);
      }
      EXPECT_TRUE(Within(run(*subject_), want, tolerance)) << dim << " norms " << with_norms;
    }
  }
}

TEST_P(RowOpsConformance, GatedSiluAgreesOverSizesAndTheWholeRange) {
  const auto check = [&](const std::vector<float>& gate_up, int64_t rows, int64_t cols) {
    const auto run = [&](Backend& backend) {
      auto out = backend.NewOperand(rows, cols);
      backend.GatedSilu(*MakeTensor(backend, gate_up, 2 * cols), static_cast<int32_t>(rows), *out);
      return Read(backend, *out, rows, cols);
    };
    const auto want = ToDouble(run(*reference_));
    // exp is good to 2^-22, three more operations to 2^-24 each, the reference to 2^-24. Below a
    // gate of -87 exp stops growing, which leaves 87/e^87 < 2e-36 of |up| ≤ 8.
    auto tolerance = Plus(Times(0x1p-21, want), OperandError(want, cols));
    for (double& t : tolerance) t += 1.6e-35;
    EXPECT_TRUE(Within(run(*subject_), want, tolerance)) << cols;
  };
  for (const int64_t cols : Sizes()) {
    Data data(static_cast<uint32_t>(cols));
    auto gate_up = data.Normal(3 * 2 * cols, 1.5f);
    for (float& value : gate_up) value = std::clamp(value, -8.0f, 8.0f);
    check(gate_up, 3, cols);
  }
  std::vector<float> sweep;
  for (int i = -1000; i < 1000; ++i) sweep.push_back(static_cast<float>(i) * 0.11f);
  sweep.insert(sweep.end(), 2000, 1.0f);
  check(sweep, 1, 2000);
}

TEST_P(RowOpsConformance, SelectRowsCopies) {
  Data data(3);
  const auto x = data.Normal(7 * 37);
  auto out = subject_->NewTensor(4, 37);
  subject_->SelectRows(*MakeTensor(*subject_, x, 37), std::vector<int32_t>{6, 0, 6, 2}, *out);
  std::vector<float> want;
  for (const int64_t r : {6, 0, 6, 2})
    want.insert(want.end(), x.begin() + r * 37, x.begin() + (r + 1) * 37);
  EXPECT_TRUE(SameBits(Read(*subject_, *out, 4, 37), want));
}

TEST_P(RowOpsConformance, ATokenOfAnotherRankIsARowOfZerosAndALogitOfZero) {
  Data data(4);
  const int64_t cols = 37;
  const auto values = data.Normal(9 * cols), x = data.Normal(2 * cols);
  const auto table = subject_->LoadTable(9, cols, ReadFrom(values, cols));
  auto out = subject_->NewTensor(3, cols);
  subject_->Embed(*table, std::vector<TokenId>{4, 4, 4}, *out);
  subject_->Embed(*table, std::vector<TokenId>{4, kNoToken, 8}, *out);
  auto want = subject_->NewTensor(3, cols);
  subject_->Embed(*table, std::vector<TokenId>{4, 0, 8}, *want);
  subject_->Clear(*want, {1, 1});
  EXPECT_TRUE(SameBits(Read(*subject_, *out, 3, cols), Read(*subject_, *want, 3, cols)));
  EXPECT_EQ(Read(*subject_, *out, 3, cols)[static_cast<size_t>(cols)], 0);

  const auto tensor = MakeTensor(*subject_, x, cols);
  const std::vector<int32_t> row_of{0, 1, 1};
  std::vector<float> logits(3, 777), all(3);
  subject_->LabelLogits(*tensor, *table, row_of, std::vector<TokenId>{3, kNoToken, 5}, logits);
  subject_->LabelLogits(*tensor, *table, row_of, std::vector<TokenId>{3, 0, 5}, all);
  all[1] = 0;
  EXPECT_TRUE(SameBits(logits, all));
}

TEST_P(RowOpsConformance, TheMemoryOfRowsIsTheirValuesAndNoOtherRows) {
  for (const int64_t cols : {1, 16, 37, 1024}) {
    Data data(5);
    const auto x = data.Normal(6 * cols);
    const auto tensor = MakeTensor(*subject_, x, cols);
    EXPECT_TRUE(subject_->Memory(*tensor, {3, 0}).empty());
    const std::span<float> all = subject_->Memory(*tensor, {0, 6});
    const std::span<float> some = subject_->Memory(*tensor, {2, 3});
    EXPECT_EQ(some.data() - all.data(), 2 * (std::ssize(all) - cols) / 5);
    auto want = x;
    if (subject_->Queue() == nullptr) {  // memory of the host
      for (float& value : some) value *= 2;
      for (int64_t i = 2 * cols; i < 5 * cols; ++i) want[static_cast<size_t>(i)] *= 2;
    }
    subject_->Clear(*tensor, {5, 1});
    std::fill(want.begin() + 5 * cols, want.end(), 0.f);
    EXPECT_TRUE(SameBits(Read(*subject_, *tensor, 6, cols), want)) << cols;
    EXPECT_GE(std::ssize(subject_->Memory(*tensor, {2, 3})), 3 * cols);
  }
}

class ReadOutConformance : public VariantTest {
 protected:
  // A logit is a sum like any product's.
  struct Case {
    std::vector<double> logits, tolerances;  // [rows][vocab]
  };
  Case Exactly(const std::vector<float>& x, const std::vector<float>& head, int64_t cols) {
    const auto rounded = TableAs(dtype(), head);
    const double error = kLambda * std::sqrt(static_cast<double>(cols) + 2) * kU;
    Case result;
    for (int64_t r = 0; r < std::ssize(x) / cols; ++r) {
      for (int64_t v = 0; v < std::ssize(head) / cols; ++v) {
        double sum = 0, magnitude = 0;
        for (int64_t c = 0; c < cols; ++c) {
          const double product = static_cast<double>(x[static_cast<size_t>(r * cols + c)]) *
                                 rounded[static_cast<size_t>(v * cols + c)];
          sum += product;
          magnitude += std::abs(product);
        }
        result.logits.push_back(sum);
        result.tolerances.push_back(error * magnitude);
      }
    }
    return result;
  }
};

TEST_P(ReadOutConformance, LabelLogitsAreDotProductsWithRowsOfTheHead) {
  for (const int64_t cols : Sizes()) {
    Data data(static_cast<uint32_t>(cols));
    const int64_t vocab = 20;
    const auto x = data.Normal(3 * cols), head = data.Normal(vocab * cols);
    const std::vector<int32_t> row_of = {2, 0, 0, 1, 2};
    const std::vector<TokenId> ids = {19, 0, 7, 7, 1};
    std::vector<float> got(ids.size());
    subject_->LabelLogits(*MakeTensor(*subject_, x, cols),
                          *subject_->LoadTable(vocab, cols, ReadFrom(head, cols)), row_of, ids,
                          got);
    const Case exact = Exactly(x, head, cols);
    std::vector<double> want, tolerance;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto at = static_cast<size_t>(row_of[i] * vocab + ids[i]);
      want.push_back(exact.logits[at]);
      tolerance.push_back(exact.tolerances[at]);
    }
    EXPECT_TRUE(Within(got, want, tolerance)) << cols;
  }
}

TEST_P(ReadOutConformance, SummarizeHeadSeesTheWholeVocabulary) {
  for (const int64_t vocab : {1, 2, 127, 128, 129, 1000}) {
    Data data(static_cast<uint32_t>(vocab));
    const int64_t cols = 48, rows = 3;
    const auto x = data.Normal(rows * cols), head = data.Normal(vocab * cols);
    std::vector<HeadSummary> got(static_cast<size_t>(rows));
    subject_->SummarizeHead(*MakeTensor(*subject_, x, cols),
                            *subject_->LoadTable(vocab, cols, ReadFrom(head, cols)),
                            static_cast<int32_t>(rows), got);
    const Case exact = Exactly(x, head, cols);
    for (int64_t r = 0; r < rows; ++r) {
      const auto first = exact.logits.begin() + r * vocab;
      const double largest = *std::max_element(first, first + vocab);
      double total = 0;
      for (int64_t v = 0; v < vocab; ++v) total += std::exp(first[v] - largest);
      const double want = largest + std::log(total);
      const double logit_error =
          *std::max_element(exact.tolerances.begin(), exact.tolerances.end());
      // Every exponent is off by a logit's error; exp, and the sum of a piece of 128 logits, by
      // 2^-22 and 40 roundings.
      const double error = logit_error + 0x1p-22 + 40 * kU + 4 * kU * std::abs(want);
      const auto& summary = got[static_cast<size_t>(r)];
      EXPECT_TRUE(Within(std::vector<float>{summary.log_sum_exp}, std::vector<double>{want},
                         std::vector<double>{error}))
          << vocab;
      ASSERT_GE(summary.argmax, 0);
      ASSERT_LT(summary.argmax, vocab);
      EXPECT_GE(first[summary.argmax], largest - 2 * logit_error) << vocab;
    }
  }
}

TEST_P(ReadOutConformance, TheFirstOfEqualMaximaWinsWhereverItLies) {
  const int64_t vocab = 400;
  for (const int64_t at : {0, 1, 127, 128, 300, 399}) {
    std::vector<float> head(static_cast<size_t>(vocab), 1.0f);
    for (int64_t v = at; v < vocab; v += 50) head[static_cast<size_t>(v)] = 2;
    std::vector<HeadSummary> got(1);
    subject_->SummarizeHead(*MakeTensor(*subject_, {1}, 1),
                            *subject_->LoadTable(vocab, 1, ReadFrom(head, 1)), 1, got);
    EXPECT_EQ(got[0].argmax, at);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RowOpsConformance, ::testing::ValuesIn(AllVariants()),
                         VariantName);
INSTANTIATE_TEST_SUITE_P(Backends, ReadOutConformance, ::testing::ValuesIn(AllVariants()),
                         VariantName);

}  // namespace
}  // namespace sysone
