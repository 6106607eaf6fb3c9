// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "worker/stored_rows.h"

namespace sysone {
namespace {

TEST(WeightReader, OrdersRowsOfNeighbourRotationForRotationOfHalves) {
  // Two heads of four rows: a head's stored rows are a0 b0 a1 b1, and a0 a1 b0 b1 is what rotation of halves expects.
  const std::vector<int64_t> expected{0, 2, 1, 3, 4, 6, 5, 7};
  for (size_t row = 0; row < expected.size(); ++row)
    EXPECT_EQ(DeinterleavedRow(static_cast<int64_t>(row), 4), expected[row]) << row;
}

TEST(WeightReader, OrdersABiasAsTheRowsItBelongsTo) {
  const std::vector<float> stored{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(DeinterleavedValues(stored, 4), (std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(DeinterleavedValues(stored, 0), stored);
}

TensorInfo Numbers(std::vector<float>& values, int64_t rows, int64_t cols) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  TensorInfo tensor;
  tensor.shape = {rows, cols};
  tensor.data = reinterpret_cast<const std::byte*>(values.data());
  tensor.bytes = values.size() * sizeof(float);
  return tensor;
}

TEST(WeightReader, ARanksPartsAreThoseRowsAndColumnsOfTheWhole) {
  std::vector<float> a_values(8 * 4), b_values(6 * 4);
  const TensorInfo a = Numbers(a_values, 8, 4), b = Numbers(b_values, 6, 4);
  // The second head of `a` in the order of halves, then rows 1 … 3 of `b`.
  const RowReader rows = StackRows({{&a, 4, {4, 4}}, {&b, 0, {1, 3}}});
  std::vector<float> out(7 * 4);
  rows(0, 7, out.data());
  const std::vector<size_t> of_a{4, 6, 5, 7}, of_b{1, 2, 3};
  for (size_t r = 0; r < 7; ++r)
    for (size_t c = 0; c < 4; ++c)
      EXPECT_EQ(out[r * 4 + c], r < 4 ? a_values[of_a[r] * 4 + c] : b_values[of_b[r - 4] * 4 + c]);
  // From the middle on, over the border of two parts.
  std::vector<float> middle(2 * 4);
  rows(3, 2, middle.data());
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), out.begin() + 3 * 4));

  std::vector<float> cols(6 * 2);
  StackRows({{&b, 0, {}, {1, 2}}})(0, 6, cols.data());
  for (size_t r = 0; r < 6; ++r)
    for (size_t c = 0; c < 2; ++c) EXPECT_EQ(cols[r * 2 + c], b_values[r * 4 + 1 + c]);
}

TEST(StoredRows, OfARankAreItsOwnAndZerosForOthers) {
  std::vector<float> values(5 * 2);
  const StoredRows rows(Numbers(values, 5, 2), 2, 3);
  std::vector<float> out(3 * 2, -1);
  rows.Read(std::vector<TokenId>{2, kNoToken, 0}, out);
  EXPECT_EQ(out, (std::vector<float>{8, 9, 0, 0, 4, 5}));
}

TEST(StoredRows, ReadsRowsOfItsOwnCopyInTheFilesFormat) {
  std::vector<float> values(3 * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5F;
  TensorInfo tensor;
  tensor.shape = {3, 4};
  tensor.data = reinterpret_cast<const std::byte*>(values.data());
  tensor.bytes = values.size() * sizeof(float);
  const StoredRows rows(tensor, 0, 3);
  values.assign(values.size(), -1);
  std::vector<float> out(2 * 4);
  rows.Read(std::vector<TokenId>{2, 0}, out);
  EXPECT_EQ(out, (std::vector<float>{8.5F, 9.5F, 10.5F, 11.5F, 0.5F, 1.5F, 2.5F, 3.5F}));
}

}  // namespace
}  // namespace sysone
