// MatMul and MatMulAdd of every backend against the reference, over sizes around every vector and
// tile width.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/int8.h"
#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"

namespace sysone {
namespace {

struct Product {
  int64_t rows, out_cols, in_cols;
};

// Σ|x||w| a result: what all its rounding errors are relative to.
std::vector<double> Magnitudes(const Product& p, const std::vector<float>& x,
                               const std::vector<float>& w) {
  std::vector<double> sums;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t c = 0; c < p.out_cols; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < p.in_cols; ++k)
        sum += std::abs(static_cast<double>(x[static_cast<size_t>(r * p.in_cols + k)]) *
                        w[static_cast<size_t>(c * p.in_cols + k)]);
      sums.push_back(sum);
    }
  }
  return sums;
}

class MatMulConformance : public VariantTest {
 protected:
  enum class Kind { kPlain, kBias, kAdd };
  bool fine() const { return GetParam().grain == WeightGrain::kFine; }

  static constexpr int32_t kOffset = 2;  // first row of a MatMulAdd

  std::vector<float> Run(Backend& backend, const Product& p, Kind kind, const std::vector<float>& x,
                         const std::vector<float>& w, const std::vector<float>& extra) {
    auto operand = MakeOperand(backend, x, p.in_cols);
    auto weight = backend.LoadWeight(p.out_cols, p.in_cols, ReadFrom(w, p.in_cols));
    if (kind == Kind::kAdd) {
      auto sum = MakeTensor(backend, extra, p.out_cols);
      backend.MatMulAdd(*operand, *weight, {kOffset, static_cast<int32_t>(p.rows)}, *sum);
      return Read(backend, *sum, p.rows + kOffset, p.out_cols);
    }
    auto bias = kind == Kind::kBias ? backend.LoadVector(extra) : nullptr;
    auto out = backend.NewTensor(p.rows, p.out_cols);
    backend.MatMul(*operand, *weight, bias.get(), static_cast<int32_t>(p.rows), *out);
    return Read(backend, *out, p.rows, p.out_cols);
  }

  std::vector<float> Extra(Data& data, const Product& p, Kind kind, bool integers) {
    const int64_t count = kind == Kind::kPlain  ? 0
                          : kind == Kind::kBias ? p.out_cols
                                                : (p.rows + kOffset) * p.out_cols;
    return integers ? data.Integers(count, -9, 9) : data.Normal(count);
  }

  // Each result is in_cols products summed in float32, at most in_cols + 2 roundings with the bias,
  // over Σ|xw| (+ |bias|); where operands are rounded to bfloat16, each product is off by kU16
  // more. In int8, where each x is off by up to half of its step, independently of the others, their
  // sum exceeds kLambda / 2 · sqrt(Σ(step·w)²) with a probability below 2·exp(-kLambda²/2) (Hoeffding
  // 1963), and Σ step·|w| / 2 never; the sum of a group is exact. The reference rounds its double once.
  void Check(const Product& p, Kind kind) {
    SCOPED_TRACE(::testing::Message() << p.rows << " rows, " << p.in_cols << " to " << p.out_cols);
    Data data(static_cast<uint32_t>(p.rows * 7919 + p.out_cols * 104729 + p.in_cols));
    const auto x = data.Normal(p.rows * p.in_cols), w = data.Normal(p.out_cols * p.in_cols);
    const auto extra = Extra(data, p, kind, false);
    const auto want = ToDouble(Run(*reference_, p, kind, x, w, extra));
    std::vector<double> tolerance(want.size());
    const auto weight = WeightAs(GetParam(), w, p.in_cols);
    const auto magnitudes = Magnitudes(p, x, weight), steps = StepErrors(p, x, weight);
    const double roundings = kLambda * std::sqrt(static_cast<double>(p.in_cols) + 2) * kU;
    const size_t skipped =
        want.size() - magnitudes.size();  // rows above the range stay as they are
    for (size_t i = 0; i < magnitudes.size(); ++i)
      tolerance[skipped + i] = (roundings + operand_rounding_) * magnitudes[i] + steps[i] +
                               roundings * (std::abs(want[skipped + i]) + magnitudes[i]);
    EXPECT_TRUE(Within(Run(*subject_, p, kind, x, w, extra), want, tolerance));
  }

  // What int8 steps may add up to in each result.
  std::vector<double> StepErrors(const Product& p, const std::vector<float>& x,
                                 const std::vector<float>& w) const {
    const std::vector<double> steps = OperandSteps(ToDouble(x), p.in_cols);
    std::vector<double> errors;
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < p.out_cols; ++c) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < p.in_cols; ++k) {
          const double part = steps[static_cast<size_t>(r * p.in_cols + k)] *
                              w[static_cast<size_t>(c * p.in_cols + k)];
          sum += std::abs(part);
          squares += part * part;
        }
        errors.push_back(std::min(kLambda * std::sqrt(squares), sum) / 2);
      }
    }
    return errors;
  }

  // In int8 an activation is exact if it is a multiple of its group's step: make the step 1, by so many of the largest value
  // that none is a peak; words have no peaks, and one a group will do. (Weights on few levels are exact as they are.)
  void MakeExact(Data& data, std::vector<float>& x, int64_t cols) {
    if (dtype() != "int8") return;
    const int32_t largest = levels().activation;
    const int64_t piece = fine() ? kInt8Group : 4;
    for (int64_t row = 0; row < std::ssize(x); row += cols) {
      for (int64_t first = 0; first < cols; first += piece) {
        const auto count = static_cast<int>(std::min(piece, cols - first));
        x[static_cast<size_t>(row + first + data.Integer(0, count - 1))] =
            static_cast<float>(data.Integer(0, 1) == 0 ? largest : -largest);
      }
    }
  }

  // Integers have no rounding anywhere, so the results must be equal: nothing is lost, doubled or
  // taken from elsewhere. Two weights of small range, whose codes fit half a byte, and of a large one, whose codes do not.
  void CheckExactly(const Product& p, Kind kind) {
    for (const int largest : {7, 63}) {
      // Σ|x w| has to stay below 2^24, in each term that is added, too: 127 · 63 · 2096, or with words 32767 · 7 · 73 groups,
      // 32767 · 2 · 63 · 4 groups.
      if (fine() && largest == 63 && p.in_cols > 4 * kInt8Group) continue;
      CheckExactly(p, kind, largest);
    }
  }

  void CheckExactly(const Product& p, Kind kind, int largest) {
    SCOPED_TRACE(::testing::Message() << p.rows << " rows, " << p.in_cols << " to " << p.out_cols);
    Data data(static_cast<uint32_t>(p.rows + p.out_cols * 31 + p.in_cols * 1009));
    auto x = data.Integers(p.rows * p.in_cols, -7, 7);
    const auto w = data.Integers(p.out_cols * p.in_cols, -largest, largest);
    MakeExact(data, x, p.in_cols);
    const auto extra = Extra(data, p, kind, true);
    EXPECT_TRUE(
        SameBits(Run(*subject_, p, kind, x, w, extra), Run(*reference_, p, kind, x, w, extra)));
  }
};

TEST_P(MatMulConformance, AgreesOverAllWidthsUpToTwoPanels) {
  for (int64_t cols = 1; cols <= 66; ++cols) {
    CheckExactly({5, cols, 19}, Kind::kPlain);
    Check({1, cols, 19}, Kind::kBias);
  }
}

TEST_P(MatMulConformance, AgreesOverDepthsUpToTwoVectors) {
  for (int64_t depth = 1; depth <= 34; ++depth) {
    CheckExactly({7, 37, depth}, Kind::kBias);
    CheckExactly({1, 37, depth}, Kind::kAdd);
  }
}

TEST_P(MatMulConformance, AgreesOverBatchSizesAndAcrossBlocks) {
  for (int64_t rows = 1; rows <= 40; ++rows) CheckExactly({rows, 40, 48}, Kind::kAdd);
  for (const int64_t rows : {60, 191, 192, 193, 300, 400})
    CheckExactly({rows, 23, 30}, Kind::kBias);
}

TEST_P(MatMulConformance, AgreesOnShapesOfModels) {
  for (const Product& p : {Product{1, 112, 576},
                           {4, 144, 304},
                           {13, 576, 112},
                           {17, 192, 1536},
                           {2, 300, 2100},
                           {3, 130, 1025},
                           {6, 150, 513}}) {
    Check(p, Kind::kPlain);
    Check(p, Kind::kBias);
    Check(p, Kind::kAdd);
    CheckExactly(p, Kind::kAdd);
  }
}

TEST_P(MatMulConformance, LeavesEverythingAsItIsForNoRows) {
  CheckExactly({0, 20, 30}, Kind::kAdd);
}

INSTANTIATE_TEST_SUITE_P(Backends, MatMulConformance, ::testing::ValuesIn(AllVariants()),
                         VariantName);

}  // namespace
}  // namespace sysone
