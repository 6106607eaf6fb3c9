// SPDX-License-Identifier: Apache-2.0
#include "worker/weight_reader.h"

#include <algorithm>

namespace sysone {
namespace {

int64_t RowsOf(const StackedTensor& part) {
  return part.rows.count > 0 ? part.rows.count : part.tensor->rows();
}
int64_t ColsOf(const StackedTensor& part) {
  return part.cols.count > 0 ? part.cols.count : part.tensor->cols();
}

// `first_row`: of the tensor.
void ReadPart(const StackedTensor& part, int64_t first_row, int64_t row_count, float* out) {
  const auto read = [&](int64_t first, int64_t count, float* to) {
    if (part.cols.count == 0) return ReadRows(*part.tensor, first, count, to);
    ReadColumns(*part.tensor, first, count, part.cols.first, part.cols.count, to);
  };
  if (part.interleaved_head_dim == 0) return read(first_row, row_count, out);
  for (int64_t r = 0; r < row_count; ++r)
    read(DeinterleavedRow(first_row + r, part.interleaved_head_dim), 1, out + r * ColsOf(part));
}

bool IsCoarse(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ5_K:
      return true;
    default:
      return false;
  }
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
      const int64_t part_end = part_begin + RowsOf(part);
      const int64_t begin = std::max(first_row, part_begin);
      const int64_t end = std::min(first_row + row_count, part_end);
      if (begin < end)
        ReadPart(part, part.rows.first + begin - part_begin, end - begin,
                 out + (begin - first_row) * ColsOf(part));
      part_begin = part_end;
    }
  };
}

WeightGrain WeightGrainOf(const TensorIndex& tensors, const TensorNames& names) {
  int64_t coarse = 0, fine = 0;
  for (const TensorInfo& tensor : tensors.tensors()) {
    if (tensor.name == names.embedding || tensor.name == names.head) continue;
    (IsCoarse(tensor.type) ? coarse : fine) += tensor.rows() * tensor.cols();
  }
  return coarse > fine ? WeightGrain::kCoarse : WeightGrain::kFine;
}

Result<std::vector<float>> ReadVector(const TensorIndex& tensors, std::string_view name,
                                      int64_t size) {
  SYSONE_ASSIGN_OR_RETURN(const TensorInfo* tensor, tensors.Get(name, {size}));
  std::vector<float> values(static_cast<size_t>(size));
  ReadRows(*tensor, 0, 1, values.data());
  return values;
}

}  // namespace sysone
