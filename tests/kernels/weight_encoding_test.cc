// How weights are written for the device.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/weight_encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/bfloat16.h"

namespace sysone {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kU = 0x1p-24f;

std::vector<float> Normal(int64_t count, float sigma, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(normal(random));
  return values;
}

struct Row {
  std::vector<std::byte> bytes;
  float scale;
};

// With rubbish where the codes are to go.
Row Encode(Encoding encoding, const std::vector<float>& values) {
  const int64_t stride = PaddedDepth(std::ssize(values));
  Row row{std::vector<std::byte>(static_cast<size_t>(stride * BytesOf(encoding)), std::byte{0xFF}),
          0};
  row.scale = EncodeWeightRow(encoding, values, stride, row.bytes.data());
  return row;
}

float ValueAt(Encoding encoding, const Row& row, size_t i) {
  switch (encoding) {
    case Encoding::kFloat32: {
      float value;
      std::memcpy(&value, row.bytes.data() + 4 * i, sizeof value);
      return value;
    }
    case Encoding::kBfloat16: {
      uint16_t value;
      std::memcpy(&value, row.bytes.data() + 2 * i, sizeof value);
      return FromBfloat16(value);
    }
    case Encoding::kInt8:
      return static_cast<float>(static_cast<int8_t>(row.bytes[i])) * row.scale;
    case Encoding::kFp8:
      return FromFp8(static_cast<uint8_t>(row.bytes[i])) * row.scale;
  }
  return kNan;
}

constexpr Encoding kAll[] = {Encoding::kFloat32, Encoding::kBfloat16, Encoding::kInt8,
                             Encoding::kFp8};

// What a value may be off by: half of the distance to the next code, and what float32 rounds of inverse, product and scale.
double Tolerance(Encoding encoding, float value, float largest) {
  switch (encoding) {
    case Encoding::kFloat32:
      return 0;
    case Encoding::kBfloat16:
      return std::abs(value) * 0x1p-8;  // 7 bits behind the first one
    case Encoding::kInt8:
      return largest / 127 * (0.5 + 4 * 127 * kU);
    case Encoding::kFp8:  // 3 bits behind the first one, and steps of 2^-9 below 2^-6
      return std::max(std::abs(value) * 0x1p-4, largest / 448 * 0x1p-10) * (1 + 16 * kU) +
             4 * kU * std::abs(value);
  }
  return kNan;
}

TEST(WeightEncoding, EveryValueIsTheNearestThatTheEncodingHas) {
  for (const Encoding encoding : kAll) {
    for (const float sigma : {1e-20f, 0.02f, 1e30f}) {
      for (int64_t count = 1; count <= 40; ++count) {
        const auto values = Normal(count, sigma, static_cast<uint32_t>(count));
        const Row row = Encode(encoding, values);
        float largest = 0;
        for (const float value : values) largest = std::max(largest, std::abs(value));
        for (size_t i = 0; i < values.size(); ++i)
          EXPECT_NEAR(ValueAt(encoding, row, i), values[i], Tolerance(encoding, values[i], largest))
              << "encoding " << static_cast<int>(encoding) << ", value " << i << " of " << count;
        for (size_t i = values.size() * static_cast<size_t>(BytesOf(encoding));
             i < row.bytes.size(); ++i)
          EXPECT_EQ(row.bytes[i], std::byte{0}) << "padding";
      }
    }
  }
}

TEST(WeightEncoding, TheLargestValueOfAColumnBecomesTheLargestCode) {
  std::vector<float> values = Normal(20, 0.01f, 1);
  values[7] = -3;
  const Row int8 = Encode(Encoding::kInt8, values), fp8 = Encode(Encoding::kFp8, values);
  EXPECT_EQ(static_cast<int8_t>(int8.bytes[7]), -127);
  EXPECT_FLOAT_EQ(int8.scale, 3.0f / 127);
  EXPECT_EQ(FromFp8(static_cast<uint8_t>(fp8.bytes[7])), -448);
  EXPECT_FLOAT_EQ(fp8.scale, 3.0f / 448);
}

TEST(WeightEncoding, IntegersUpTo127AreExactInInt8) {
  std::vector<float> values;
  for (int i = -127; i <= 127; ++i) values.push_back(static_cast<float>(i));
  const Row row = Encode(Encoding::kInt8, values);
  EXPECT_EQ(row.scale, 1);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(ValueAt(Encoding::kInt8, row, i), values[i]);
}

TEST(WeightEncoding, AColumnWithAValueThatIsNoNumberHasNoResultsThatAre) {
  for (const Encoding encoding : {Encoding::kInt8, Encoding::kFp8}) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (const size_t place : {0, 5, 18}) {
        std::vector<float> values = Normal(19, 1, 2);
        values[place] = bad;
        const Row row = Encode(encoding, values);
        EXPECT_TRUE(std::isnan(row.scale));
        for (const std::byte code : row.bytes) EXPECT_EQ(code, std::byte{0});
      }
    }
  }
}

TEST(WeightEncoding, FloatsKeepNanAndInfinity) {
  for (const Encoding encoding : {Encoding::kFloat32, Encoding::kBfloat16}) {
    const Row row = Encode(encoding, {1, kNan, kInfinity, -kInfinity});
    EXPECT_EQ(row.scale, 1);
    EXPECT_TRUE(std::isnan(ValueAt(encoding, row, 1)));
    EXPECT_EQ(ValueAt(encoding, row, 2), kInfinity);
    EXPECT_EQ(ValueAt(encoding, row, 3), -kInfinity);
  }
}

TEST(WeightEncoding, ZerosAndDenormalsAreZeros) {
  for (const Encoding encoding : {Encoding::kInt8, Encoding::kFp8}) {
    for (const float small : {0.0f, -0.0f, 0x1p-149f, 0x1p-101f}) {
      const Row row = Encode(encoding, std::vector<float>(5, small));
      EXPECT_EQ(row.scale, 0);
      for (const std::byte code : row.bytes) EXPECT_EQ(code, std::byte{0});
    }
    EXPECT_GT(Encode(encoding, {0x1p-100f}).scale, 0);
  }
}

TEST(Fp8, EveryCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_EQ(ToFp8(FromFp8(byte)), byte);
  }
  EXPECT_EQ(FromFp8(0x7E), 448);
  EXPECT_EQ(FromFp8(0x08), 0x1p-6f);
  EXPECT_EQ(FromFp8(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(FromFp8(0x7F)));
}

// Between all neighbours: just below the middle, the middle (to the even code), just above.
TEST(Fp8, RoundsToTheNearestAndInTheMiddleToTheEvenCode) {
  for (uint8_t code = 0; code < 0x7E; ++code) {
    const float low = FromFp8(code), high = FromFp8(static_cast<uint8_t>(code + 1));
    ASSERT_LT(low, high);
    const float middle = (low + high) / 2;  // exact
    const auto even = static_cast<uint8_t>(code % 2 == 0 ? code : code + 1);
    const auto above = static_cast<uint8_t>(code + 1);
    for (const float sign : {1.0f, -1.0f}) {
      const auto mark = static_cast<uint8_t>(sign < 0 ? 0x80 : 0);
      EXPECT_EQ(ToFp8(sign * std::nextafter(middle, 0.0f)), mark | code);
      EXPECT_EQ(ToFp8(sign * middle), mark | even);
      EXPECT_EQ(ToFp8(sign * std::nextafter(middle, high)), mark | above);
    }
  }
}

TEST(Fp8, WhatIsAbove448Becomes448AndNanStaysNan) {
  for (const float large : {448.0f, 449.0f, 479.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(ToFp8(large), 0x7E);
    EXPECT_EQ(ToFp8(-large), 0xFE);
  }
  EXPECT_TRUE(std::isnan(FromFp8(ToFp8(kNan))));
}

}  // namespace
}  // namespace sysone
