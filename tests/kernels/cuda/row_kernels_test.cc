// Embedding, producers of operands, copies and scaled products of the CUDA backend, on the emulated device, against plain loops in
// double.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/row_kernels.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/cuda/weight_encoding.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/cuda/device_values.h"

namespace sysone {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kU = 0x1p-24;   // unit roundoff of float32
constexpr double kU16 = 0x1p-8;  // of bfloat16
constexpr double kU8 = 0x1p-4;   // of e4m3

// Remainders of vectors; then both sides of where a thread gets a second piece of a row, and where a row gets too long for
// registers (4096 columns one at a time, 16384 by four).
std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes(20);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {31, 32, 33, 60, 64, 65, 127, 128, 132, 576, 2048, 2052, 4096, 4099,
                             4100, 16384, 16400});
  return sizes;
}
std::vector<int64_t> FewSizes() { return {1, 4, 7, 8, 31, 128, 260, 1030}; }

constexpr Encoding kEncodings[] = {Encoding::kFloat32, Encoding::kBfloat16, Encoding::kInt8,
                                   Encoding::kFp8};

// Encoded rows on the device, and what a product would make of them.
class Encoded {
 public:
  Encoded(Encoding encoding, int64_t rows, int64_t cols)
      : encoding_(encoding),
        rows_(rows),
        cols_(cols),
        values_(rows * stride() * BytesOf(encoding)),
        scales_(rows) {}

  EncodedRows rows() const {
    return {encoding_, values_.data(), HasScales(encoding_) ? scales_.data() : nullptr, cols_,
            stride()};
  }
  std::vector<float> scales() const { return scales_.Read(); }
  std::vector<uint8_t> codes() const { return values_.Read(); }
  // [rows, cols], after a look at the padding: nothing may have been written there.
  std::vector<float> Decode() const {
    const auto bytes = values_.Read();
    const auto scales = scales_.Read();
    std::vector<float> decoded;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < stride(); ++c) {
        const uint8_t* at = bytes.data() + (r * stride() + c) * BytesOf(encoding_);
        if (c < cols_)
          decoded.push_back(Value(at, scales[static_cast<size_t>(r)]));
        else
          for (int64_t b = 0; b < BytesOf(encoding_); ++b) EXPECT_EQ(at[b], 0xFF) << "padding";
      }
    }
    return decoded;
  }

 private:
  int64_t stride() const { return PaddedDepth(cols_); }
  float Value(const uint8_t* at, float scale) const {
    switch (encoding_) {
      case Encoding::kFloat32: {
        float value;
        std::memcpy(&value, at, sizeof value);
        return value;
      }
      case Encoding::kBfloat16: {
        uint16_t bits;
        std::memcpy(&bits, at, sizeof bits);
        return FromBfloat16(bits);
      }
      case Encoding::kInt8:
        EXPECT_NE(*at, 0x80) << "-128 is no code";
        return static_cast<float>(static_cast<int8_t>(*at)) * scale;
      default:
        return FromFp8(*at) * scale;
    }
  }

  Encoding encoding_;
  int64_t rows_, cols_;
  DeviceValues<uint8_t> values_;
  DeviceValues<float> scales_;
};

// What encoding may change of values [rows, cols] that are right but for a relative `error`.
std::vector<double> Tolerances(const std::vector<double>& values, int64_t cols, double error,
                               Encoding encoding) {
  std::vector<double> tolerances;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(cols)) {
    double largest = 0;
    for (int64_t c = 0; c < cols; ++c)
      largest = std::max(largest, std::abs(values[row + static_cast<size_t>(c)]));
    // The scale is off by `error` and by its own rounding, its inverse too, and so is their product with a code.
    const double scaling = error + 4 * kU;
    for (int64_t c = 0; c < cols; ++c) {
      const double value = std::abs(values[row + static_cast<size_t>(c)]);
      double tolerance = error * value;
      if (encoding == Encoding::kBfloat16) tolerance += kU16 * value * (1 + error);
      if (encoding == Encoding::kInt8) tolerance += largest / 127 * 0.5 + 3 * scaling * largest;
      // Below 2^-6 steps are 2^-9 wide.
      if (encoding == Encoding::kFp8)
        tolerance += std::max(kU8 * value, largest / 448 * 0x1p-10) + 3 * scaling * value;
      tolerances.push_back(tolerance);
    }
  }
  return tolerances;
}

using RowKernelsTest = KernelTest;

TEST_P(RowKernelsTest, EmbedReadsRowsOfTablesOfBothTypes) {
  const std::vector<TokenId> ids = {8, 0, kNoToken, 3, 3, 7};
  for (const int64_t cols : Sizes()) {
    if (cols > 3000) continue;
    const auto bits = AsBfloat16(RandomValues(9 * cols, 1));
    const auto table = FromBits(bits);
    std::vector<float> want;
    for (const TokenId id : ids)
      for (int64_t c = 0; c < cols; ++c)
        want.push_back(id == kNoToken ? 0 : table[static_cast<size_t>(id * cols + c)]);
    const DeviceValues<TokenId> device_ids(ids);
    for (const size_t skipped : {0, 1}) {
      const DeviceValues<uint16_t> narrow(bits, skipped);
      const DeviceValues<float> wide(table, skipped);
      const DeviceValues<float> out(std::ssize(want));
      LaunchEmbed({Encoding::kBfloat16, narrow.data(), 9, cols}, device_ids.data(), 6, out.data(),
                  nullptr);
      EXPECT_TRUE(SameBits(out.Read(), want)) << cols;
      const DeviceValues<float> out32(std::ssize(want));
      LaunchEmbed({Encoding::kFloat32, wide.data(), 9, cols}, device_ids.data(), 6, out32.data(),
                  nullptr);
      EXPECT_TRUE(SameBits(out32.Read(), want)) << cols;
    }
  }
}

TEST_P(RowKernelsTest, SelectRowsCopiesAndClearIsZeros) {
  const std::vector<int32_t> from = {6, 0, 6, 2};
  for (const int64_t cols : FewSizes()) {
    const auto x = RandomValues(7 * cols, 2);
    std::vector<float> want;
    for (const int64_t r : from)
      want.insert(want.end(), &x[static_cast<size_t>(r * cols)], x.data() + (r + 1) * cols);
    const DeviceValues<float> device_x(x), out(4 * cols);
    LaunchSelectRows(device_x.data(), DeviceValues<int32_t>(from).data(), cols, 4, out.data(),
                     nullptr);
    EXPECT_TRUE(SameBits(out.Read(), want)) << cols;
    LaunchClear(out.data() + cols, 2 * cols, nullptr);
    std::fill_n(want.begin() + cols, 2 * cols, 0.0f);
    EXPECT_TRUE(SameBits(out.Read(), want)) << cols;
  }
}

// x / sqrt(mean(x²) + eps) · weight
std::vector<double> NormOf(const std::vector<float>& x, const std::vector<float>& weight,
                           double eps) {
  const size_t cols = weight.size();
  std::vector<double> out;
  for (size_t row = 0; row < x.size(); row += cols) {
    double squares = 0;
    for (size_t c = 0; c < cols; ++c) squares += static_cast<double>(x[row + c]) * x[row + c];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (size_t c = 0; c < cols; ++c) out.push_back(x[row + c] * scale * weight[c]);
  }
  return out;
}
// Σ x² is a sum of positive terms in chains of cols / 512 and a piece of four more, and a tree of ten levels; its root halves the
// error; six more operations follow.
double NormError(int64_t cols) { return ((static_cast<double>(cols) / 512 + 14) / 2 + 6) * kU; }

TEST_P(RowKernelsTest, RmsNormAgreesInAllEncodings) {
  for (const int64_t cols : Sizes()) {
    const auto x = RandomValues(3 * cols, static_cast<uint32_t>(cols), 3);
    const auto weight = RandomValues(cols, 5);
    const auto want = NormOf(x, weight, 1e-5f);
    for (const Encoding encoding : kEncodings) {
      for (const size_t skipped : {0, 1}) {
        const DeviceValues<float> device_x(x, skipped), device_weight(weight);
        const Encoded out(encoding, 3, cols);
        LaunchRmsNorm(device_x.data(), device_weight.data(), 1e-5f, 3, out.rows(), nullptr);
        EXPECT_TRUE(Within(out.Decode(), want, Tolerances(want, cols, NormError(cols), encoding)))
            << cols << " columns, encoding " << static_cast<int>(encoding);
      }
    }
    const DeviceValues<float> final_out(3 * cols);
    LaunchRmsNorm(DeviceValues<float>(x).data(), DeviceValues<float>(weight).data(), 1e-5f, 3,
                  RowsOf(final_out.data(), cols), nullptr);
    EXPECT_TRUE(
        Within(final_out.Read(), want, Tolerances(want, cols, NormError(cols), Encoding::kFloat32)))
        << cols;
  }
}

TEST_P(RowKernelsTest, ANormOfZerosIsZeros) {
  for (const Encoding encoding : kEncodings) {
    const Encoded out(encoding, 1, 20);
    LaunchRmsNorm(DeviceValues<float>(std::vector<float>(20)).data(),
                  DeviceValues<float>(std::vector<float>(20, 2)).data(), 1e-6f, 1, out.rows(),
                  nullptr);
    EXPECT_TRUE(SameBits(out.Decode(), std::vector<float>(20)));
  }
}

TEST_P(RowKernelsTest, ARowOfANormWithoutANumberIsNoneAndItsNeighboursAreAsBefore) {
  for (const int64_t cols : {1, 7, 64, 4099, 16400}) {
    const auto plain = RandomValues(5 * cols, 6);
    const auto weight = RandomValues(cols, 7);
    auto x = plain;
    // In the first, a middle and the last column; the squares of the fourth row overflow.
    x[static_cast<size_t>(cols)] = kNan;
    x[static_cast<size_t>(2 * cols + cols / 2)] = -kInfinity;
    x[static_cast<size_t>(4 * cols - 1)] = 3e38f;
    for (const Encoding encoding : kEncodings) {
      const auto run = [&](const std::vector<float>& values) {
        const Encoded out(encoding, 5, cols);
        LaunchRmsNorm(DeviceValues<float>(values).data(), DeviceValues<float>(weight).data(), 1e-6f,
                      5, out.rows(), nullptr);
        return out.Decode();
      };
      const auto got = run(x), before = run(plain);
      const auto row = [cols](const std::vector<float>& values, int64_t r) {
        return std::vector<float>(values.begin() + r * cols, values.begin() + (r + 1) * cols);
      };
      for (const int64_t r : {0, 4}) EXPECT_TRUE(SameBits(row(got, r), row(before, r)));
      for (const int64_t r : {1, 2, 3})
        for (const float value : row(got, r)) EXPECT_TRUE(std::isnan(value)) << r;
    }
  }
}

TEST_P(RowKernelsTest, EncodeRowsKeepsEveryValueAsWellAsTheEncodingCan) {
  for (const int64_t cols : Sizes()) {
    // From rows of tiny values to rows of the largest.
    auto x = RandomValues(5 * cols, 8);
    const float sizes[] = {1, 1e-25f, 1e-12f, 1e20f, 3e37f};
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::clamp(x[i], -5.0f, 5.0f) * sizes[i / static_cast<size_t>(cols)];
    const std::vector<double> want(x.begin(), x.end());
    for (const Encoding encoding : kEncodings) {
      for (const size_t skipped : {0, 3}) {
        const Encoded out(encoding, 5, cols);
        LaunchEncodeRows(DeviceValues<float>(x, skipped).data(), 5, out.rows(), nullptr);
        EXPECT_TRUE(Within(out.Decode(), want, Tolerances(want, cols, 0, encoding)))
            << cols << " columns, encoding " << static_cast<int>(encoding);
      }
    }
  }
}

TEST_P(RowKernelsTest, ARowWithoutANumberHasTheScaleNanAndATinyOneIsZeros) {
  for (const int64_t cols : {1, 9, 64, 4099}) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      for (const int64_t at : {int64_t{0}, cols / 2, cols - 1}) {
        std::vector<float> x = RandomValues(3 * cols, 9);
        x[static_cast<size_t>(cols + at)] = bad;
        for (int64_t c = 0; c < cols; ++c) x[static_cast<size_t>(2 * cols + c)] = -0x1p-101f;
        for (const Encoding encoding : {Encoding::kInt8, Encoding::kFp8}) {
          const Encoded out(encoding, 3, cols);
          LaunchEncodeRows(DeviceValues<float>(x).data(), 3, out.rows(), nullptr);
          const auto scales = out.scales(), values = out.Decode();
          const auto codes = out.codes();
          EXPECT_TRUE(std::isfinite(scales[0]));
          EXPECT_TRUE(std::isnan(scales[1]));
          EXPECT_EQ(scales[2], 0);
          for (int64_t c = 0; c < cols; ++c) {
            EXPECT_TRUE(std::isfinite(values[static_cast<size_t>(c)]));
            EXPECT_TRUE(std::isnan(values[static_cast<size_t>(cols + c)]));
            EXPECT_EQ(codes[static_cast<size_t>(PaddedDepth(cols) + c)], 0);
            EXPECT_EQ(values[static_cast<size_t>(2 * cols + c)], 0);
          }
        }
        // Without a scale it is a matter of the one value.
        for (const Encoding encoding : {Encoding::kFloat32, Encoding::kBfloat16}) {
          const Encoded out(encoding, 3, cols);
          LaunchEncodeRows(DeviceValues<float>(x).data(), 3, out.rows(), nullptr);
          const auto values = out.Decode();
          for (int64_t c = 0; c < cols; ++c) {
            const float value = values[static_cast<size_t>(cols + c)];
            EXPECT_EQ(std::isfinite(value), c != at);
            EXPECT_EQ(std::isnan(value), c == at && std::isnan(bad));
          }
        }
      }
    }
  }
}

TEST_P(RowKernelsTest, GatedSiluAgreesInAllEncodingsAndOverTheWholeRange) {
  const auto check = [](const std::vector<float>& gate_up, int64_t cols, size_t skipped) {
    std::vector<double> want;
    for (size_t i = 0; i < gate_up.size(); ++i) {
      if (i / static_cast<size_t>(cols) % 2 == 1) continue;
      const double gate = gate_up[i];
      want.push_back(gate / (1 + std::exp(-gate)) * gate_up[i + static_cast<size_t>(cols)]);
    }
    const auto rows = static_cast<int32_t>(std::ssize(want) / cols);
    for (const Encoding encoding : kEncodings) {
      const Encoded out(encoding, rows, cols);
      LaunchGatedSilu(DeviceValues<float>(gate_up, skipped).data(), rows, out.rows(), nullptr);
      // exp is good to 2^-22 here and 2^-23 on the device, three operations follow. Above exp(88) = infinity, 87/e^87 < 2e-36 of
      // |up| ≤ 8 is left out.
      auto tolerances = Tolerances(want, cols, 0x1p-21, encoding);
      for (double& tolerance : tolerances) tolerance += 1.6e-35;
      EXPECT_TRUE(Within(out.Decode(), want, tolerances))
          << cols << " columns, encoding " << static_cast<int>(encoding);
    }
  };
  for (const int64_t cols : Sizes()) {
    auto gate_up = RandomValues(3 * 2 * cols, static_cast<uint32_t>(cols), 1.5f);
    for (float& value : gate_up) value = std::clamp(value, -8.0f, 8.0f);
    check(gate_up, cols, 0);
    if (cols % 4 == 0 && cols < 200) check(gate_up, cols, 2);
  }
  std::vector<float> sweep;
  for (int i = -1000; i < 1000; ++i) sweep.push_back(static_cast<float>(i) * 0.11f);
  sweep.insert(sweep.end(), 2000, 1.0f);
  check(sweep, 2000, 0);
}

TEST_P(RowKernelsTest, ScaleOutMultipliesByBothScalesAndAddsWhatItIsTold) {
  for (const int64_t cols : FewSizes()) {
    for (const int64_t stride : {cols, PaddedDepth(cols) + 16}) {
      const int32_t rows = 3;
      std::mt19937 random(10);
      std::vector<int32_t> sums(static_cast<size_t>(rows * stride));
      for (int32_t& sum : sums)
        sum = std::uniform_int_distribution<int32_t>(-2'000'000'000, 2'000'000'000)(random);
      const std::vector<float> float_sums(sums.begin(), sums.end());
      const auto row_scales = RandomValues(rows, 11), column_scales = RandomValues(cols, 12),
                 bias = RandomValues(cols, 13, 1e9f), before = RandomValues(rows * cols, 14, 1e9f);
      for (const bool integers : {true, false}) {
        for (const int kind : {0, 1, 2}) {  // bare, with a bias, added
          const DeviceValues<int32_t> device_sums(sums);
          const DeviceValues<float> device_floats(float_sums), scales(row_scales),
              columns(column_scales), device_bias(bias), out(before);
          const ScaledOut to{scales.data(), columns.data(),
                             kind == 1 ? device_bias.data() : nullptr, kind == 2, out.data()};
          if (integers)
            LaunchScaleOut(device_sums.data(), stride, cols, rows, to, nullptr);
          else
            LaunchScaleOut(device_floats.data(), stride, cols, rows, to, nullptr);
          std::vector<double> want, tolerances;
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < cols; ++c) {
              const double value = static_cast<double>(sums[static_cast<size_t>(r * stride + c)]) *
                                   row_scales[static_cast<size_t>(r)] *
                                   column_scales[static_cast<size_t>(c)];
              const double more = kind == 0   ? 0
                                  : kind == 1 ? bias[static_cast<size_t>(c)]
                                              : before[static_cast<size_t>(r * cols + c)];
              want.push_back(value + more);
              // The sum as a float, two products, one sum.
              tolerances.push_back(3 * kU * std::abs(value) +
                                   kU * (std::abs(value) + std::abs(more)));
            }
          }
          EXPECT_TRUE(Within(out.Read(), want, tolerances)) << cols << " kind " << kind;
        }
      }
    }
  }
}

TEST_P(RowKernelsTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const int64_t cols : {63, 576, 2052}) {
    const auto x = RandomValues(7 * 2 * cols, 15), weight = RandomValues(cols, 16);
    const DeviceValues<float> device_x(x), device_weight(weight);
    for (const Encoding encoding : kEncodings) {
      const auto compare = [&](const auto& launch) {
        const Encoded all(encoding, 7, cols), one(encoding, 1, cols);
        launch(0, 7, all.rows());
        launch(4, 1, one.rows());
        const auto values = all.Decode();
        EXPECT_TRUE(SameBits(one.Decode(), std::span(values).subspan(static_cast<size_t>(4 * cols),
                                                                     static_cast<size_t>(cols))));
      };
      compare([&](int64_t first, int32_t rows, const EncodedRows& out) {
        LaunchRmsNorm(device_x.data() + first * cols, device_weight.data(), 1e-6f, rows, out,
                      nullptr);
      });
      compare([&](int64_t first, int32_t rows, const EncodedRows& out) {
        LaunchGatedSilu(device_x.data() + first * 2 * cols, rows, out, nullptr);
      });
    }
  }
}

TEST_P(RowKernelsTest, NoRowsAreNothingToDo) {
  const DeviceValues<float> nothing(0);
  const DeviceValues<int32_t> no_ids(0);
  for (const Encoding encoding : kEncodings) {
    const Encoded out(encoding, 0, 8);
    LaunchRmsNorm(nothing.data(), nothing.data(), 1e-6f, 0, out.rows(), nullptr);
    LaunchGatedSilu(nothing.data(), 0, out.rows(), nullptr);
    LaunchEncodeRows(nothing.data(), 0, out.rows(), nullptr);
  }
  LaunchEmbed({Encoding::kBfloat16, nothing.data(), 9, 8}, no_ids.data(), 0, nothing.data(),
              nullptr);
  LaunchSelectRows(nothing.data(), no_ids.data(), 8, 0, nothing.data(), nullptr);
  LaunchClear(nothing.data(), 0, nullptr);
  LaunchScaleOut(no_ids.data(), 8, 8, 0, {}, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Orders, RowKernelsTest, ::testing::ValuesIn(OrderNames()), OrderTestName);

}  // namespace
}  // namespace sysone
