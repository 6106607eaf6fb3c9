// SPDX-License-Identifier: Apache-2.0
#include "worker/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sysone {
namespace {

// Frequencies are computed in double and rounded once to float32; the expected figures have 9
// digits.
constexpr double kRelative = 1e-7;

void ExpectFrequencies(const RopeConfig& rope, int32_t head_dim,
                       const std::vector<std::pair<size_t, double>>& expected) {
  const std::vector<float> frequencies = RopeFrequencies(rope, head_dim);
  ASSERT_EQ(frequencies.size(), static_cast<size_t>(head_dim / 2));
  for (const auto& [pair, value] : expected)
    EXPECT_NEAR(frequencies[pair] / value, 1, kRelative) << "pair " << pair;
}

TEST(Rope, WithoutScalingFallsGeometrically) {
  RopeConfig rope;
  rope.theta = 10000;
  ExpectFrequencies(rope, 8, {{0, 1}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  RopeConfig rope;
  rope.theta = 10000;
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  ExpectFrequencies(rope, 8, {{0, 0.25}, {1, 0.025}, {3, 0.00025}});
}

TEST(Rope, Llama3ScalingKeepsFastPairsDividesSlowOnesAndBlendsBetween) {
  RopeConfig rope;
  rope.theta = 500000;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_positions = 8192;
  ExpectFrequencies(rope, 128,
                    {{0, 1},
                     {10, 0.128687373},
                     {28, 0.00321144599},
                     {31, 0.000856751413},
                     {33, 0.00031269375},
                     {34, 0.000178507813},
                     {35, 9.55621235e-05},
                     {63, 3.06892599e-07}});
}

TEST(Rope, YarnKeepsFastPairsDividesSlowOnesAndRampsBetween) {
  RopeConfig rope;
  rope.theta = 1e6;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  rope.original_max_positions = 32768;
  ExpectFrequencies(rope, 128,
                    {{0, 1},
                     {1, 0.805842188},
                     {20, 0.0133352143},
                     {24, 0.00537532149},
                     {30, 0.00106436098},
                     {39, 6.49039432e-05},
                     {40, 4.44569853e-05},
                     {63, 3.1023444e-07}});
  EXPECT_FLOAT_EQ(RopeAttentionFactor(rope), 1.13862944f);  // 0.1 ln 4 + 1
  rope.attention_factor = 0.5;
  EXPECT_FLOAT_EQ(RopeAttentionFactor(rope), 0.5f);
}

TEST(Rope, DividesByTheFilesOwnDivisors) {
  RopeConfig rope;
  rope.theta = 10000;
  rope.frequency_divisors = {1, 2, 4, 8};
  ExpectFrequencies(rope, 8, {{0, 1}, {1, 0.05}, {2, 0.0025}, {3, 0.000125}});
}

TEST(Rope, TablesHoldCosAndSinOfEveryPosition) {
  RopeConfig rope;
  rope.theta = 100;
  const RopeValues values = MakeRopeValues(rope, 4, 50);
  ASSERT_EQ(values.cos.size(), 100u);
  for (size_t position = 0; position < 50; ++position) {
    EXPECT_FLOAT_EQ(values.cos[position * 2],
                    static_cast<float>(std::cos(static_cast<double>(position))));
    const float angle = static_cast<float>(position) * 0.1f;
    EXPECT_FLOAT_EQ(values.sin[position * 2 + 1], std::sin(angle));
  }
}

}  // namespace
}  // namespace sysone
