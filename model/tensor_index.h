// The tensors of a checkpoint by name, whatever file format holds them, and the reading of their rows as float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace sysone {

// How a tensor's elements are stored; the names are those of safetensors and ggml.
enum class TensorType : uint8_t { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K };

// "Q4_K"
const char* TensorTypeName(TensorType type);

// Elements come in blocks that share scales; a plain type's block is one element. A row is whole blocks.
struct BlockLayout {
  int64_t elements;
  int64_t bytes;
};
BlockLayout BlockLayoutOf(TensorType type);

struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;  // row-major, outermost first: a matrix is [rows, cols], a vector [cols]
  const std::byte* data = nullptr;  // in the mapped file
  size_t bytes = 0;

  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;  // product of all but the last dimension
};

std::string ShapeText(const std::vector<int64_t>& shape);  // "[576, 1536]"

// Bytes of a tensor of this type and shape; nullopt when a dimension is not positive, a row is not whole blocks, or the
// size does not fit in 63 bits. What a file claims passes through here before anything is read.
std::optional<size_t> TensorBytes(TensorType type, const std::vector<int64_t>& shape);

// Immutable once built; any thread may read. Keeps the mapped files alive.
class TensorIndex {
 public:
  // `keep_alive` owns the mappings that the tensors' data point into.
  TensorIndex(std::vector<TensorInfo> tensors, std::vector<std::shared_ptr<const void>> keep_alive);
  TensorIndex(TensorIndex&&) = default;  // no copies: by_name_ views the names in tensors_
  TensorIndex& operator=(TensorIndex&&) = default;

  const TensorInfo* Find(std::string_view name) const;                 // nullptr when absent
  Result<const TensorInfo*> Get(std::string_view name) const;          // kCorrupt, naming the tensor, when absent
  // As Get, and checks the shape; the error names the tensor and both shapes.
  Result<const TensorInfo*> Get(std::string_view name, const std::vector<int64_t>& shape) const;
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::vector<std::shared_ptr<const void>> keep_alive_;
};

// Dequantises rows [first_row, first_row + row_count) of `tensor` into out[row_count * cols], float32, exactly as the
// format defines them (tested bit for bit against an independent reading). Any thread; the rows must exist.
void ReadRows(const TensorInfo& tensor, int64_t first_row, int64_t row_count, float* out);

// The same for columns [first_col, first_col + col_count) of these rows: out[row_count * col_count]. Of each row only the
// blocks with these columns are read.
void ReadColumns(const TensorInfo& tensor, int64_t first_row, int64_t row_count, int64_t first_col, int64_t col_count,
                 float* out);

}  // namespace sysone
