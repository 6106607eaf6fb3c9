// What is special to int8: the quantisation itself, the limits of its integer sums, and rows that do
// not fit it. Everything else is in the conformance tests.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cpu/isa.h"
#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"

namespace sysone {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Int8, TheLargestWeightOfAGroupTakesTheLargestCode) {
  for (const float largest : {1e-20f, 0.3f, 77.0f, 1e30f}) {
    const std::vector<float> w = {largest / 3, -largest, 0, largest};
    std::vector<int8_t> q(4);
    const float scale = QuantiseGroup(w.data(), 4, q.data());
    EXPECT_EQ(q, (std::vector<int8_t>{42, -127, 0, 127}));
    EXPECT_NEAR(scale * 127 / largest, 1, 3 * kU);
  }
}

TEST(Int8, AGroupThatIsNearlyZeroIsZeroAndOneThatIsNoNumberStaysNone) {
  std::vector<int8_t> q(3, 9);
  for (const std::vector<float>& w : {std::vector<float>{0, 0, 0}, {1e-40f, -1e-35f, 0}}) {
    EXPECT_EQ(QuantiseGroup(w.data(), 3, q.data()), 0);
    EXPECT_EQ(q, std::vector<int8_t>(3, 0));
  }
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    const std::vector<float> w = {1, bad, 2};
    EXPECT_TRUE(std::isnan(QuantiseGroup(w.data(), 3, q.data())));
    EXPECT_EQ(q, std::vector<int8_t>(3, 0));
  }
}

class Int8Product : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<float> Product(const std::vector<float>& x, const std::vector<float>& w,
                             int64_t in_cols) {
    const int64_t rows = std::ssize(x) / in_cols, cols = std::ssize(w) / in_cols;
    auto out = backend_->NewTensor(rows, cols);
    backend_->MatMul(*MakeOperand(*backend_, x, in_cols),
                     *backend_->LoadWeight(cols, in_cols, ReadFrom(w, in_cols)), nullptr,
                     static_cast<int32_t>(rows), *out);
    return Read(*backend_, *out, rows, cols);
  }

  std::unique_ptr<Backend> backend_ = MakeVariant({"cpu", "int8", GetParam()}, 2);
};

// Every activation at its largest and every weight at ±127, over depths of models and beyond.
TEST_P(Int8Product, HoldsTheLargestSumsThereCanBe) {
  for (const int64_t k : {516, 1536, 8960, 18944}) {
    for (const int64_t rows : {1, 7, 30}) {
      constexpr auto levels = static_cast<float>(kActivationLevels);
      const std::vector<float> x(static_cast<size_t>(rows * k), levels);
      std::vector<float> w(static_cast<size_t>(3 * k), 127.0f);
      for (int64_t i = k; i < 2 * k; ++i) w[static_cast<size_t>(i)] = -127;
      for (int64_t i = 2 * k; i < 3 * k; i += 2) w[static_cast<size_t>(i)] = -127;
      const double largest = double{levels} * 127 * static_cast<double>(k);
      // Exact integers, times the scale, one multiply-add a group.
      const double tolerance = (static_cast<double>(k / kInt8Group) + 8) * kU * largest;
      const std::vector<float> got = Product(x, w, k);
      for (int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<size_t>(3 * r);
        EXPECT_NEAR(got[at], largest, tolerance) << k;
        EXPECT_NEAR(got[at + 1], -largest, tolerance) << k;
        EXPECT_EQ(got[at + 2], 0) << k;  // k is even
      }
    }
  }
}

TEST_P(Int8Product, ARowThatIsNoNumberSpoilsNoOther) {
  constexpr int64_t kIn = 40, kOut = 20, kRows = 14;
  Data data(7);
  const auto w = data.Normal(kOut * kIn), good = data.Normal(kRows * kIn);
  const auto want = Product(good, w, kIn);
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    auto x = good;
    for (const int64_t r : {2, 5, 13}) x[static_cast<size_t>(r * kIn + 3 * r)] = bad;
    const auto got = Product(x, w, kIn);
    for (int64_t r = 0; r < kRows; ++r) {
      const bool spoilt = r == 2 || r == 5 || r == 13;
      for (int64_t c = 0; c < kOut; ++c) {
        const auto i = static_cast<size_t>(r * kOut + c);
        if (spoilt)
          EXPECT_TRUE(std::isnan(got[i])) << r;
        else
          EXPECT_TRUE(SameBits(std::span(got).subspan(i, 1), std::span(want).subspan(i, 1))) << r;
      }
    }
  }
}

TEST_P(Int8Product, ARowOfZerosOrOfNextToNothingGivesZeros) {
  constexpr int64_t kIn = 24, kOut = 9;
  const auto w = Data(8).Normal(kOut * kIn);
  std::vector<float> x(3 * kIn);
  x[kIn + 4] = 1e-40f;
  x[2 * kIn] = 1;
  const auto got = Product(x, w, kIn);
  for (int64_t i = 0; i < 2 * kOut; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], 0);
  EXPECT_NE(got[2 * kOut], 0);
}

// The others keep a step of the outlier divided by 32767, which is what activations of 8 bits
// could not do.
TEST_P(Int8Product, AnOutlierOfAThousandLeavesTheOthersTwoDigits) {
  constexpr int64_t kIn = 576;
  Data data(9);
  auto x = data.Normal(kIn);
  x[100] = 1000;
  std::vector<float> w(2 * kIn, 1.0f);
  w[100] = 0;  // the first column does not see it
  double want = 0;
  for (int64_t i = 0; i < kIn; ++i)
    if (i != 100) want += x[static_cast<size_t>(i)];
  const auto got = Product(x, w, kIn);
  const double step = 1000.0 / kActivationLevels;
  EXPECT_NEAR(got[0], want, kLambda / 2 * step * std::sqrt(kIn));
  EXPECT_NEAR(got[1], want + 1000, kLambda / 2 * step * std::sqrt(kIn));
}

INSTANTIATE_TEST_SUITE_P(Sets, Int8Product, ::testing::ValuesIn(IsaNames()));

}  // namespace
}  // namespace sysone
