// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_reader.h"

#include <algorithm>

namespace sysone {
namespace {

void ReadPart(const StackedTensor& part, int64_t first_row, int64_t row_count, float* out) {
  if (part.interleaved_head_dim == 0) return ReadRows(*part.tensor, first_row, row_count, out);
  for (int64_t r = 0; r < row_count; ++r)
    ReadRows(*part.tensor, DeinterleavedRow(first_row + r, part.interleaved_head_dim), 1,
             out + r * part.tensor->cols());
}

}  // namespace

int64_t DeinterleavedRow(int64_t row, int32_t head_dim) {
  const int64_t head = row / head_dim;
  const int64_t in_head = row % head_dim;
  const int64_t half = head_dim / 2;
  return head * head_dim + 2 * (in_head % half) + in_head / half;
}

std::vector<float> DeinterleavedValues(std::vector<float> values, int32_t interleaved_head_dim) {
  if (interleaved_head_dim == 0) return values;
  std::vector<float> ordered(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    ordered[i] = values[static_cast<size_t>(
        DeinterleavedRow(static_cast<int64_t>(i), interleaved_head_dim))];
  return ordered;
}

RowReader StackRows(std::vector<StackedTensor> parts) {
  return [parts = std::move(parts)](int64_t first_row, int64_t row_count, float* out) {
    int64_t part_begin = 0;
    for (const StackedTensor& part : parts) {
      const int64_t part_end = part_begin + part.tensor->rows();
      const int64_t begin = std::max(first_row, part_begin);
      const int64_t end = std::min(first_row + row_count, part_end);
      if (begin < end)
        ReadPart(part, begin - part_begin, end - begin,
                 out + (begin - first_row) * part.tensor->cols());
      part_begin = part_end;
    }
  };
}

Result<std::vector<float>> ReadVector(const TensorIndex& tensors, std::string_view name,
                                      int64_t size) {
  SYSONE_ASSIGN_OR_RETURN(const TensorInfo* tensor, tensors.Get(name, {size}));
  std::vector<float> values(static_cast<size_t>(size));
  ReadRows(*tensor, 0, 1, values.data());
  return values;
}

}  // namespace sysone
