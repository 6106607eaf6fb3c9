// A matrix of which single rows are read, kept as the checkpoint stores it: the embedding of a model
// whose head is another matrix. It needs none of a backend's formats, and 4 bits a weight take a
// quarter of 16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/tensor_index.h"

namespace sysone {

class StoredRows {
 public:
  // Copies the bytes of rows [first_row, first_row + row_count): pages of a mapped file may leave memory between two
  // requests.
  StoredRows(const TensorInfo& tensor, int64_t first_row, int64_t row_count);

  // out [ids, cols] as float32; every id is one of these rows, counted from the first of them, or kNoToken: zeros.
  void Read(std::span<const TokenId> ids, std::span<float> out) const;

 private:
  std::vector<std::byte> bytes_;
  TensorInfo tensor_;  // of these rows; its data are bytes_
};

}  // namespace sysone
