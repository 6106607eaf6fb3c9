// What is special to int8: the quantisation itself, the limits of its integer sums, and rows that do
// not fit it. Everything else is in the conformance tests.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/int8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/isa.h"
#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"

namespace sysone {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Value(const Int8Scale& scale, int8_t q) {
  return scale.middle + scale.scale * static_cast<float>(q);
}

TEST(Int8, AGroupIsCutInto255EqualSteps) {
  Data data(3);
  for (const float sigma : {1e-20f, 0.02f, 77.0f, 1e30f}) {
    const std::vector<float> w = data.Normal(kInt8Group, sigma);
    std::vector<int8_t> q(w.size());
    const Int8Scale scale = QuantiseGroup(w.data(), kInt8Group, q.data());
    const auto [least, largest] = std::ranges::minmax(w);
    EXPECT_NEAR(scale.scale * 255 / (largest - least), 1, 4 * kU);
    // Half a step, and what float32 rounds of values and codes.
    for (size_t i = 0; i < w.size(); ++i)
      EXPECT_NEAR(Value(scale, q[i]), w[i], scale.scale * (0.5 + 2 * 255 * kU)) << i;
  }
}

// Blocks of files in 4, 5 and 6 bits: low + level · step.
TEST(Int8, ValuesOnAFewEqualLevelsAreKeptAsTheyAre) {
  Data data(4);
  for (const int levels : {16, 32, 64}) {
    for (int round = 0; round < 200; ++round) {
      const float step = std::abs(data.Normal(1, 0.01f)[0]) + 1e-4f, low = data.Normal(1, 0.1f)[0];
      std::vector<float> w;
      for (int64_t i = 0; i < kInt8Group; ++i)
        w.push_back(low + step * static_cast<float>(data.Integer(0, levels - 1)));
      std::vector<int8_t> q(w.size());
      const Int8Scale scale = QuantiseGroup(w.data(), kInt8Group, q.data());
      // A value and its code round a few times, by kU of the largest that takes part.
      const double rounding = 8 * kU * (std::abs(low) + static_cast<float>(levels) * step);
      for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(Value(scale, q[i]), w[i], rounding);
    }
  }
}

TEST(Int8, EqualValuesAreTheMiddle) {
  for (const int64_t n : {int64_t{1}, kInt8Group}) {
    const std::vector<float> w(static_cast<size_t>(n), -0.7f);
    std::vector<int8_t> q(w.size(), 9);
    const Int8Scale scale = QuantiseGroup(w.data(), n, q.data());
    EXPECT_EQ(scale.scale, 0);
    EXPECT_EQ(scale.middle, -0.7f);
    EXPECT_EQ(q, std::vector<int8_t>(w.size(), 0));
  }
}

TEST(Int8, AGroupThatIsNearlyZeroIsZeroAndOneThatIsNoNumberStaysNone) {
  std::vector<int8_t> q(3, 9);
  for (const std::vector<float>& w : {std::vector<float>{0, 0, 0}, {1e-40f, -1e-35f, 0}}) {
    const Int8Scale scale = QuantiseGroup(w.data(), 3, q.data());
    EXPECT_EQ(scale.scale, 0);
    EXPECT_EQ(scale.middle, 0);
    EXPECT_EQ(q, std::vector<int8_t>(3, 0));
  }
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const std::vector<float>& w :
         {std::vector<float>{1, bad, 2}, {bad, 1, 2}, {bad, bad, bad}}) {
      const Int8Scale scale = QuantiseGroup(w.data(), 3, q.data());
      EXPECT_TRUE(std::isnan(scale.scale));
      EXPECT_TRUE(std::isnan(scale.middle));
      EXPECT_EQ(q, std::vector<int8_t>(3, 0));
    }
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

// Every activation at its largest and nearly every code at an end, over depths of models and beyond. A group's third value
// makes its codes 1 apart.
TEST_P(Int8Product, HoldsTheLargestSumsThereCanBe) {
  for (const int64_t k : {516, 1536, 8960, 18944}) {
    constexpr auto levels = static_cast<float>(kActivationLevels);
    std::vector<float> w(static_cast<size_t>(2 * k));
    double want[2] = {0, 0}, magnitude = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = i % kInt8Group;
      w[static_cast<size_t>(i)] = at == 0 ? -128.0f : at == 1 ? 0.0f : 127.0f;
      w[static_cast<size_t>(k + i)] = at == 0 ? 127.0f : at == 1 ? 0.0f : -128.0f;
      for (int c = 0; c < 2; ++c) want[c] += double{levels} * w[static_cast<size_t>(c * k + i)];
      magnitude += double{levels} * 128;
    }
    // Exact integers, times the scale and the middle, two multiply-adds a group.
    const double tolerance = 2 * (static_cast<double>(k) / kInt8Group + 8) * kU * magnitude;
    for (const int64_t rows : {1, 7, 30}) {
      const std::vector<float> got =
          Product(std::vector<float>(static_cast<size_t>(rows * k), levels), w, k);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i % 2], tolerance) << k;
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
