// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_index.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sysone {

const char* TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kF16:
      return "F16";
    case TensorType::kBF16:
      return "BF16";
    case TensorType::kQ4_0:
      return "Q4_0";
    case TensorType::kQ4_1:
      return "Q4_1";
    case TensorType::kQ5_0:
      return "Q5_0";
    case TensorType::kQ5_1:
      return "Q5_1";
    case TensorType::kQ8_0:
      return "Q8_0";
    case TensorType::kQ4_K:
      return "Q4_K";
    case TensorType::kQ5_K:
      return "Q5_K";
    case TensorType::kQ6_K:
      return "Q6_K";
  }
  return "?";
}

BlockLayout BlockLayoutOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {1, 4};
    case TensorType::kF16:
    case TensorType::kBF16:
      return {1, 2};
    case TensorType::kQ4_0:
      return {32, 2 + 16};
    case TensorType::kQ4_1:
      return {32, 2 + 2 + 16};
    case TensorType::kQ5_0:
      return {32, 2 + 4 + 16};
    case TensorType::kQ5_1:
      return {32, 2 + 2 + 4 + 16};
    case TensorType::kQ8_0:
      return {32, 2 + 32};
    case TensorType::kQ4_K:
      return {256, 2 + 2 + 12 + 128};
    case TensorType::kQ5_K:
      return {256, 2 + 2 + 12 + 32 + 128};
    case TensorType::kQ6_K:
      return {256, 128 + 64 + 16 + 2};
  }
  SYSONE_CHECK(false, "no such tensor type: %d", static_cast<int>(type));
  return {1, 1};
}

std::optional<size_t> TensorBytes(TensorType type, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dimension : shape)
    if (dimension <= 0 || __builtin_mul_overflow(elements, dimension, &elements))
      return std::nullopt;
  const BlockLayout block = BlockLayoutOf(type);
  if ((shape.empty() ? 1 : shape.back()) % block.elements != 0) return std::nullopt;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / block.elements, block.bytes, &bytes)) return std::nullopt;
  return static_cast<size_t>(bytes);
}

int64_t TensorInfo::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

void ReadColumns(const TensorInfo& tensor, int64_t first_row, int64_t row_count, int64_t first_col,
                 int64_t col_count, float* out) {
  SYSONE_CHECK(first_col >= 0 && col_count >= 0 && first_col <= tensor.cols() - col_count,
               "columns [%lld, +%lld) of tensor %s, which has %lld",
               static_cast<long long>(first_col), static_cast<long long>(col_count),
               tensor.name.c_str(), static_cast<long long>(tensor.cols()));
  SYSONE_CHECK(first_row >= 0 && row_count >= 0 && first_row <= tensor.rows() - row_count,
               "rows [%lld, +%lld) of tensor %s, which has %lld", static_cast<long long>(first_row),
               static_cast<long long>(row_count), tensor.name.c_str(),
               static_cast<long long>(tensor.rows()));
  if (col_count == 0) return;
  const BlockLayout layout = BlockLayoutOf(tensor.type);
  const int64_t first_block = first_col / layout.elements;
  const int64_t blocks = (first_col + col_count - 1) / layout.elements + 1 - first_block;
  const int64_t row_bytes = tensor.cols() / layout.elements * layout.bytes;
  // These blocks of one row, as a tensor of their own.
  TensorInfo piece;
  piece.name = tensor.name;
  piece.type = tensor.type;
  piece.shape = {blocks * layout.elements};
  piece.bytes = static_cast<size_t>(blocks * layout.bytes);
  std::vector<float> values(static_cast<size_t>(piece.cols()));
  for (int64_t r = 0; r < row_count; ++r) {
    piece.data = tensor.data + (first_row + r) * row_bytes + first_block * layout.bytes;
    ReadRows(piece, 0, 1, values.data());
    std::copy_n(values.data() + (first_col - first_block * layout.elements), col_count,
                out + r * col_count);
  }
}

TensorIndex::TensorIndex(std::vector<TensorInfo> tensors,
                         std::vector<std::shared_ptr<const void>> keep_alive)
    : tensors_(std::move(tensors)), keep_alive_(std::move(keep_alive)) {
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

const TensorInfo* TensorIndex::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Result<const TensorInfo*> TensorIndex::Get(std::string_view name) const {
  const TensorInfo* const tensor = Find(name);
  if (tensor == nullptr)
    return Error(Code::kCorrupt, "tensor \"%s\" is missing", std::string(name).c_str());
  return tensor;
}

Result<const TensorInfo*> TensorIndex::Get(std::string_view name,
                                           const std::vector<int64_t>& shape) const {
  SYSONE_ASSIGN_OR_RETURN(const TensorInfo* const tensor, Get(name));
  if (tensor->shape != shape)
    return Error(Code::kCorrupt, "tensor \"%s\" has shape %s, the config asks for %s",
                 tensor->name.c_str(), ShapeText(tensor->shape).c_str(), ShapeText(shape).c_str());
  return tensor;
}

}  // namespace sysone
