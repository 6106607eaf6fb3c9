// Every stored type against blocks that another program read (make_dequantise_data.py), bit for
// bit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "model/mapped_file.h"
#include "model/tensor_index.h"

namespace sysone {
namespace {

struct Example {
  TensorType type;
  std::string raw;
  std::vector<uint32_t> expected;  // bits
};

TensorType TypeNamed(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(TensorType::kQ6_K); ++i)
    if (name == TensorTypeName(static_cast<TensorType>(i))) return static_cast<TensorType>(i);
  ADD_FAILURE() << "no type " << name;
  return TensorType::kF32;
}

std::vector<Example> ReadExamples() {
  const auto file = ReadWholeFile(SYSONE_SOURCE_DIR "/tests/model/data/dequantise.bin");
  SYSONE_CHECK(file.ok(), "%s", file.status().message().c_str());
  size_t at = 0;
  const auto take = [&](size_t bytes) {
    SYSONE_CHECK(bytes <= file->size() - at, "the data ends at %zu", at);
    at += bytes;
    return file->substr(at - bytes, bytes);
  };
  const auto number = [&] {
    uint32_t value;
    std::memcpy(&value, take(4).data(), 4);
    return value;
  };
  std::vector<Example> examples;
  while (at < file->size()) {
    Example example;
    example.type = TypeNamed(take(number()));
    const auto blocks = static_cast<size_t>(number());
    const BlockLayout layout = BlockLayoutOf(example.type);
    example.raw = take(blocks * static_cast<size_t>(layout.bytes));
    example.expected.resize(blocks * static_cast<size_t>(layout.elements));
    const std::string values = take(example.expected.size() * 4);
    std::memcpy(example.expected.data(), values.data(), values.size());
    examples.push_back(std::move(example));
  }
  return examples;
}

TensorInfo Matrix(TensorType type, int64_t rows, int64_t cols, const std::string& raw) {
  TensorInfo tensor;
  tensor.name = TensorTypeName(type);
  tensor.type = type;
  tensor.shape = {rows, cols};
  tensor.data = reinterpret_cast<const std::byte*>(raw.data());
  tensor.bytes = raw.size();
  return tensor;
}

TEST(Dequantise, EveryTypeAgreesBitForBitWithTheIndependentReading) {
  const auto examples = ReadExamples();
  ASSERT_EQ(examples.size(), 10u);  // all types but F32
  for (const Example& example : examples) {
    // Three blocks a row; an offset of one byte: files promise no alignment for rows.
    const int64_t cols = 3 * BlockLayoutOf(example.type).elements;
    const auto rows = static_cast<int64_t>(example.expected.size()) / cols;
    const std::string shifted = "x" + example.raw;
    TensorInfo tensor = Matrix(example.type, rows, cols, example.raw);
    ASSERT_EQ(TensorBytes(tensor.type, {rows, cols}).value_or(0),
              static_cast<size_t>(rows * cols / BlockLayoutOf(tensor.type).elements *
                                  BlockLayoutOf(tensor.type).bytes));
    tensor.data = reinterpret_cast<const std::byte*>(shifted.data()) + 1;
    std::vector<float> out(static_cast<size_t>(rows * cols));
    ReadRows(tensor, 0, rows, out.data());
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), example.expected[i])
          << tensor.name << " element " << i << ": " << out[i];
  }
}

TEST(Dequantise, RowsInTheMiddleAreThoseOfTheWhole) {
  for (const Example& example : ReadExamples()) {
    const int64_t cols = BlockLayoutOf(example.type).elements;
    const auto rows = static_cast<int64_t>(example.expected.size()) / cols;
    const TensorInfo tensor = Matrix(example.type, rows, cols, example.raw);
    std::vector<float> out(static_cast<size_t>(2 * cols + 1), 777);
    ReadRows(tensor, 5, 2, out.data());
    for (size_t i = 0; i < static_cast<size_t>(2 * cols); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]),
                example.expected[static_cast<size_t>(5 * cols) + i])
          << tensor.name;
    EXPECT_EQ(out.back(), 777) << "wrote past the rows of " << tensor.name;
    ReadRows(tensor, rows, 0, out.data());  // no rows at the end
  }
}

TEST(Dequantise, ColumnsOfRowsAreThoseOfTheWhole) {
  for (const Example& example : ReadExamples()) {
    const int64_t block = BlockLayoutOf(example.type).elements;
    const int64_t cols = 3 * block;
    const auto rows = static_cast<int64_t>(example.expected.size()) / cols;
    ASSERT_GE(rows, 3);
    const TensorInfo tensor = Matrix(example.type, rows, cols, example.raw);
    struct Part {
      int64_t first, count;
    };
    // Whole blocks, parts of one, across a border, all, none at the end.
    for (const Part part : {Part{0, block},
                            {block, 2 * block},
                            {block / 2, (block + 1) / 2},
                            {block - 1, 2},
                            {0, cols},
                            {cols - 1, 1},
                            {cols, 0}}) {
      std::vector<float> out(static_cast<size_t>(2 * part.count + 1), 777);
      ReadColumns(tensor, 1, 2, part.first, part.count, out.data());
      for (int64_t r = 0; r < 2; ++r)
        for (int64_t c = 0; c < part.count; ++c)
          ASSERT_EQ(std::bit_cast<uint32_t>(out[static_cast<size_t>(r * part.count + c)]),
                    example.expected[static_cast<size_t>((r + 1) * cols + part.first + c)])
              << tensor.name << " row " << r << " column " << part.first + c;
      EXPECT_EQ(out.back(), 777) << "wrote past the columns of " << tensor.name;
    }
  }
}

TEST(Dequantise, ReadsAll65536Halves) {
  std::string raw(2 * 65536, 0);
  for (size_t i = 0; i < 65536; ++i) {
    raw[2 * i] = static_cast<char>(i & 255);
    raw[2 * i + 1] = static_cast<char>(i >> 8);
  }
  std::vector<float> out(65536);
  ReadRows(Matrix(TensorType::kF16, 1, 65536, raw), 0, 1, out.data());
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto mantissa = static_cast<double>(i & 0x3ff);
    const int exponent = static_cast<int>(i >> 10 & 31);
    EXPECT_EQ(std::signbit(out[i]), i >= 0x8000);
    if (exponent == 31) {
      EXPECT_TRUE(mantissa == 0 ? std::isinf(out[i]) : std::isnan(out[i])) << i;
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::fabs(static_cast<double>(out[i])), expected) << i;
    }
  }
}

TEST(Dequantise, ReadsFloat32AsItIs) {
  const std::vector<float> values = {1, -0.0f, 3.5f, 1e-40f};
  std::string raw(16, 0);
  std::memcpy(raw.data(), values.data(), 16);
  std::vector<float> out(2);
  ReadRows(Matrix(TensorType::kF32, 2, 2, raw), 1, 1, out.data());
  EXPECT_EQ(out, (std::vector<float>{3.5f, 1e-40f}));
}

TEST(DequantiseDeathTest, RowsThatDoNotExistAreOurMistake) {
  const std::string raw(16, 0);
  const TensorInfo tensor = Matrix(TensorType::kF32, 2, 2, raw);
  float out[8];
  EXPECT_DEATH(ReadRows(tensor, 1, 2, out), "rows");
  EXPECT_DEATH(ReadRows(tensor, -1, 1, out), "rows");
  EXPECT_DEATH(ReadColumns(tensor, 0, 1, 1, 2, out), "columns");
  EXPECT_DEATH(ReadColumns(tensor, 2, 1, 0, 1, out), "rows");
}

}  // namespace
}  // namespace sysone
