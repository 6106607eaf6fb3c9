// SPDX-License-Identifier: Apache-2.0
#include "worker/stored_rows.h"

#include <algorithm>

#include "base/check.h"

namespace sysone {

StoredRows::StoredRows(const TensorInfo& tensor, int64_t first_row, int64_t row_count)
    : tensor_(tensor) {
  const BlockLayout layout = BlockLayoutOf(tensor.type);
  const int64_t row_bytes = tensor.cols() / layout.elements * layout.bytes;
  const std::byte* const begin = tensor.data + first_row * row_bytes;
  bytes_.assign(begin, begin + row_count * row_bytes);
  tensor_.shape = {row_count, tensor.cols()};
  tensor_.data = bytes_.data();
  tensor_.bytes = bytes_.size();
}

void StoredRows::Read(std::span<const TokenId> ids, std::span<float> out) const {
  const auto cols = static_cast<size_t>(tensor_.cols());
  SYSONE_CHECK(out.size() >= ids.size() * cols, "%zu values for %zu rows", out.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kNoToken) {
      std::fill_n(out.data() + i * cols, cols, 0.f);
      continue;
    }
    SYSONE_CHECK(ids[i] >= 0 && ids[i] < tensor_.rows(), "row %d of %lld", ids[i],
                 static_cast<long long>(tensor_.rows()));
    ReadRows(tensor_, ids[i], 1, out.data() + i * cols);
  }
}

}  // namespace sysone
