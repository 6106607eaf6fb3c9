// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_reader.h"

#include <gtest/gtest.h>

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

TEST(StoredRows, ReadsRowsOfItsOwnCopyInTheFilesFormat) {
  std::vector<float> values(3 * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5F;
  TensorInfo tensor;
  tensor.shape = {3, 4};
  tensor.data = reinterpret_cast<const std::byte*>(values.data());
  tensor.bytes = values.size() * sizeof(float);
  const StoredRows rows(tensor);
  values.assign(values.size(), -1);
  std::vector<float> out(2 * 4);
  rows.Read(std::vector<TokenId>{2, 0}, out);
  EXPECT_EQ(out, (std::vector<float>{8.5F, 9.5F, 10.5F, 11.5F, 0.5F, 1.5F, 2.5F, 3.5F}));
}

}  // namespace
}  // namespace sysone
