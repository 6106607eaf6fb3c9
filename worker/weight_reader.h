// Rows of one or more tensors of a checkpoint, stacked, as the RowReader that backends load weights
// from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/tensor_index.h"

namespace sysone {

// Rows or columns [first, first + count) of a tensor. count 0: all.
struct TensorSlice {
  int64_t first = 0;
  int64_t count = 0;
};

struct StackedTensor {
  const TensorInfo* tensor = nullptr;
  // Not 0: the rows are those of heads of this size, stored for rotation of neighbours; they are
  // read in the order that rotation of halves expects (row j * d/2 + i of a head comes from stored
  // row 2i + j).
  int32_t interleaved_head_dim = 0;
  // A rank's part; rows of interleaved heads: whole heads. Nothing else of the tensor is read.
  TensorSlice rows = {}, cols = {};
};

// The parts must be equally wide; the tensors are kept alive by their TensorIndex.
RowReader StackRows(std::vector<StackedTensor> parts);

// What most of the weights of a model's products are like.
WeightGrain WeightGrainOf(const TensorIndex& tensors, const TensorNames& names);

// A vector of `size` values.
Result<std::vector<float>> ReadVector(const TensorIndex& tensors, std::string_view name,
                                      int64_t size);

// The row of a head that is read as row `row` when heads of `head_dim` rows are stored for rotation
// of neighbours.
int64_t DeinterleavedRow(int64_t row, int32_t head_dim);

// A bias of such heads in the order that DeinterleavedRow gives their rows; as it is when `interleaved_head_dim` is 0.
std::vector<float> DeinterleavedValues(std::vector<float> values, int32_t interleaved_head_dim);

}  // namespace sysone
