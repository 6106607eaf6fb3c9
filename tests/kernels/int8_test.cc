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

float Value(const Int8Scale& scale, uint8_t q) {
  return scale.low + scale.scale * static_cast<float>(q);
}

constexpr int32_t kCoarse = kCoarseLevels.weight, kFine = kFineLevels.weight;

TEST(Int8, AGroupIsCutIntoAsManyEqualStepsAsThereAreCodes) {
  Data data(3);
  for (const int32_t steps : {kCoarse, kFine}) {
    for (const float sigma : {1e-20f, 0.02f, 77.0f, 1e30f}) {
      const std::vector<float> w = data.Normal(kInt8Group, sigma);
      std::vector<uint8_t> q(w.size());
      const Int8Scale scale = QuantiseGroup(w.data(), kInt8Group, steps, q.data());
      const auto [least, largest] = std::ranges::minmax(w);
      EXPECT_NEAR(scale.scale * static_cast<float>(steps) / (largest - least), 1, 4 * kU);
      // Half a step, and what float32 rounds of values and codes.
      for (size_t i = 0; i < w.size(); ++i)
        EXPECT_NEAR(Value(scale, q[i]), w[i], scale.scale * (0.5 + 4 * steps * kU)) << i;
    }
  }
}

// Blocks of files in 4, 5 and 6 bits: low + level · step.
TEST(Int8, ValuesOnAFewEqualLevelsAreKeptAsTheyAre) {
  Data data(4);
  for (const int levels : {16, 32, 64, 128, 200}) {
    const int32_t most = levels < kCoarse ? kCoarse : kFine;
    for (int round = 0; round < 200; ++round) {
      const float step = std::abs(data.Normal(1, 0.01f)[0]) + 1e-4f, low = data.Normal(1, 0.1f)[0];
      std::vector<float> w;
      for (int64_t i = 0; i < kInt8Group; ++i)
        w.push_back(low + step * static_cast<float>(data.Integer(0, levels - 1)));
      std::vector<uint8_t> q(w.size());
      const Int8Scale scale = QuantiseGroup(w.data(), kInt8Group, most, q.data());
      // A value and its code round a few times, by kU of the largest that takes part.
      const double rounding = 8 * kU * (std::abs(low) + static_cast<float>(levels) * step);
      for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(Value(scale, q[i]), w[i], rounding);
    }
  }
}

// Q8_0: a block of 32 is q · d, |q| ≤ 127, and d has 11 bits. The blocks of a row differ by some powers of two.
TEST(Int8, AColumnOfAFileIn8BitsIsKeptAsItIs) {
  Data data(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<float> w;
    for (int block = 0; block < 18; ++block) {
      const float d = std::ldexp(static_cast<float>(data.Integer(1024, 2047)), -24 + block % 4);
      for (int i = 0; i < kInt8Group; ++i)
        w.push_back(d * static_cast<float>(data.Integer(-127, 127)));
    }
    std::vector<uint8_t> q(w.size());
    std::vector<Int8Scale> groups(w.size() / kInt8Group);
    const float unit = QuantiseColumn(w, kFine, q.data(), groups.data());
    for (size_t i = 0; i < w.size(); ++i) {
      const Int8Scale& group = groups[i / kInt8Group];
      // Low and scale · q are each up to 254 steps, a few roundings of which are lost.
      ASSERT_NEAR(WeightOf(group, q[i]) * unit, w[i], 4 * kU * 254 * group.scale * unit) << i;
    }
  }
}

TEST(Int8, EqualValuesAreTheLowest) {
  for (const int64_t n : {int64_t{1}, kInt8Group}) {
    const std::vector<float> w(static_cast<size_t>(n), -0.7f);
    std::vector<uint8_t> q(w.size(), 9);
    const Int8Scale scale = QuantiseGroup(w.data(), n, kCoarse, q.data());
    EXPECT_EQ(scale.scale, 0);
    EXPECT_EQ(scale.low, -0.7f);
    EXPECT_EQ(q, std::vector<uint8_t>(w.size(), 0));
  }
}

TEST(Int8, AGroupThatIsNearlyZeroIsZeroAndOneThatIsNoNumberStaysNone) {
  std::vector<uint8_t> q(3, 9);
  for (const std::vector<float>& w : {std::vector<float>{0, 0, 0}, {1e-40f, -1e-35f, 0}}) {
    const Int8Scale scale = QuantiseGroup(w.data(), 3, kFine, q.data());
    EXPECT_EQ(scale.scale, 0);
    EXPECT_EQ(scale.low, 0);
    EXPECT_EQ(q, std::vector<uint8_t>(3, 0));
  }
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const std::vector<float>& w :
         {std::vector<float>{1, bad, 2}, {bad, 1, 2}, {bad, bad, bad}}) {
      const Int8Scale scale = QuantiseGroup(w.data(), 3, kFine, q.data());
      EXPECT_TRUE(std::isnan(scale.scale));
      EXPECT_TRUE(std::isnan(scale.low));
      EXPECT_EQ(q, std::vector<uint8_t>(3, 0));
    }
  }
}

class Int8Product : public ::testing::TestWithParam<std::tuple<std::string, WeightGrain>> {
 protected:
  WeightGrain grain() const { return std::get<1>(GetParam()); }
  Int8Levels levels() const { return LevelsOf(grain()); }
  std::vector<float> Product(const std::vector<float>& x, const std::vector<float>& w,
                             int64_t in_cols) {
    const int64_t rows = std::ssize(x) / in_cols, cols = std::ssize(w) / in_cols;
    auto out = backend_->NewTensor(rows, cols);
    backend_->MatMul(*MakeOperand(*backend_, x, in_cols),
                     *backend_->LoadWeight(cols, in_cols, ReadFrom(w, in_cols)), nullptr,
                     static_cast<int32_t>(rows), *out);
    return Read(*backend_, *out, rows, cols);
  }

  std::unique_ptr<Backend> backend_ =
      MakeVariant({"cpu", "int8", std::get<0>(GetParam()), grain()}, 2);
};

// Every activation at its largest and all codes but one at theirs, over depths of models and beyond; in half bytes and in
// bytes.
TEST_P(Int8Product, HoldsTheLargestSumsThereCanBe) {
  for (const int32_t largest : {kHalfByteLevels, levels().weight}) {
    for (const int64_t k : {516, 1536, 8960, 18944}) {
      const auto activation = static_cast<float>(levels().activation);
      std::vector<float> w(static_cast<size_t>(2 * k));
      double want[2] = {0, 0}, magnitude = 0;
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = i % kInt8Group;  // a group's second value makes its codes 1 apart
        const auto code = static_cast<float>(at == 0 ? 0 : at == 1 ? 1 : largest);
        w[static_cast<size_t>(i)] = code;
        w[static_cast<size_t>(k + i)] = -code;
        for (int c = 0; c < 2; ++c)
          want[c] += double{activation} * w[static_cast<size_t>(c * k + i)];
        magnitude += double{activation} * 2 * largest;  // with what `low` adds
      }
      // Exact integers, times step and scale, three roundings a group and as many sums.
      const double tolerance = 2 * (static_cast<double>(k) / kInt8Group + 8) * kU * magnitude;
      for (const int64_t rows : {1, 7, 30}) {
        for (const float sign : {1.0f, -1.0f}) {
          const std::vector<float> got =
              Product(std::vector<float>(static_cast<size_t>(rows * k), sign * activation), w, k);
          for (size_t i = 0; i < got.size(); ++i)
            EXPECT_NEAR(got[i], sign * want[i % 2], tolerance) << k << " " << largest;
        }
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

// 18 groups of a row with a few values that are far above the others.
std::vector<float> RowWithPeaks(Data& data, float peak) {
  std::vector<float> x = data.Normal(18 * kInt8Group);
  for (const size_t at : {5u, 100u, 101u, 575u}) x[at] *= peak;
  return x;
}

// Two peaks in one group, one in two others, none in the rest. Bytes: peaks are exact, and each other value is off by half a step
// of values below 5. Words: each value is off by half a step of its group's largest.
TEST_P(Int8Product, ValuesBesidePeaksKeepTheirDigits) {
  Data data(9);
  for (const float peak : {50.0f, 1000.0f, 1e6f}) {
    const auto x = RowWithPeaks(data, peak);
    const std::vector<float> w(x.size(), 1.0f);
    double want = 0, squares = 0;
    for (size_t k = 0; k < x.size(); k += kInt8Group) {
      float largest = 5;
      for (size_t i = k; i < k + kInt8Group; ++i) {
        want += x[i];
        if (grain() == WeightGrain::kFine) largest = std::max(largest, std::abs(x[i]));
      }
      squares += kInt8Group * std::pow(largest / static_cast<float>(levels().activation), 2);
    }
    // kLambda as in the conformance tests; then what float32 rounds of the largest sums.
    EXPECT_NEAR(Product(x, w, std::ssize(x))[0], want,
                kLambda / 2 * std::sqrt(squares) + 32 * kU * 5 * peak);
  }
}

// The third one is the group's largest code.
TEST_P(Int8Product, MorePeaksThanAGroupKeepsAreCodes) {
  if (grain() == WeightGrain::kFine) GTEST_SKIP() << "words have no peaks";
  std::vector<float> x(2 * kInt8Group * 18, 0.0f), w(x.size(), 0.0f);
  for (const size_t at : {3u, 4u, 5u, 6u}) x[at] = 127 + static_cast<float>(at);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 3) - 1;
  // 133 and 132 are peaks; 131 is 127 steps, and 130 is 126.03 of them.
  const double want = 130 * w[3] + 131 * w[4] + 132 * w[5] + 133 * w[6];
  EXPECT_NEAR(Product(x, w, std::ssize(x))[0], want, 0.04 * 131.0 / 127);
}

TEST_P(Int8Product, ARowHasTheSameBitsBesideRowsWithAndWithoutPeaks) {
  Data data(10);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 26; ++r) rows.push_back(RowWithPeaks(data, r % 3 == 0 ? 300.0f : 1.0f));
  const int64_t in_cols = std::ssize(rows[0]);
  for (const int largest : {7, 63}) {  // half bytes and bytes
    const auto w = data.Integers(40 * in_cols, -largest, largest);
    std::vector<float> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    const auto together = Product(all, w, in_cols);
    for (size_t r = 0; r < rows.size(); ++r)
      EXPECT_TRUE(SameBits(std::span(together).subspan(r * 40, 40), Product(rows[r], w, in_cols)))
          << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Int8Product,
                         ::testing::Combine(::testing::ValuesIn(IsaNames()),
                                            ::testing::Values(WeightGrain::kCoarse,
                                                              WeightGrain::kFine)));

}  // namespace
}  // namespace sysone
