// The comparators fail where they must.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/compare.h"

#include <limits>
#include <vector>

namespace sysone {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool Close(std::vector<float> got, std::vector<double> want, std::vector<double> tolerance) {
  return static_cast<bool>(Within(got, want, tolerance));
}

TEST(Within, TakesTheToleranceAsInclusiveBound) {
  EXPECT_TRUE(Close({1, -2}, {1.5, -2}, {0.5, 0}));
  EXPECT_FALSE(Close({1, -2}, {1.5, -2}, {0.49, 0}));
  EXPECT_FALSE(Close({1, -2}, {1, 2}, {0.5, 0.5})) << "sign";
  EXPECT_TRUE(Close({}, {}, {}));
}

TEST(Within, FailsOnNanInAnyPlace) {
  EXPECT_FALSE(Close({kNan}, {1}, {1e9}));
  EXPECT_FALSE(Close({1}, {kNan}, {1e9}));
  EXPECT_FALSE(Close({kNan}, {kNan}, {1e9}));
  EXPECT_FALSE(Close({1}, {1}, {kNan}));
  EXPECT_FALSE(Close({1}, {1}, {kInf}));
}

TEST(Within, WantsTheSameInfinity) {
  EXPECT_TRUE(Close({kInf, -kInf}, {kInf, -kInf}, {0, 0}));
  EXPECT_FALSE(Close({kInf}, {-kInf}, {1e9}));
  EXPECT_FALSE(Close({kInf}, {1}, {1e9}));
  EXPECT_FALSE(Close({1}, {kInf}, {1e9}));
}

TEST(Within, FailsOnAnotherShape) {
  EXPECT_FALSE(Close({1}, {1, 1}, {0, 0}));
  EXPECT_FALSE(Close({1, 1}, {1}, {0}));
  EXPECT_FALSE(Close({1, 1}, {1, 1}, {0}));
}

TEST(SameBits, TellsNeighboursAndSignedZerosApart) {
  const std::vector<float> one = {1}, next = {std::nextafter(1.0f, 2.0f)}, zero = {0},
                           minus = {-0.0f};
  EXPECT_TRUE(SameBits(one, one));
  EXPECT_FALSE(SameBits(one, next));
  EXPECT_FALSE(SameBits(zero, minus));
  EXPECT_FALSE(SameBits(one, std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace sysone
