// SPDX-License-Identifier: Apache-2.0
#include "worker/stored_rows.h"

#include "base/check.h"

namespace sysone {

StoredRows::StoredRows(const TensorInfo& tensor)
    : bytes_(tensor.data, tensor.data + tensor.bytes), tensor_(tensor) {
  tensor_.data = bytes_.data();
}

void StoredRows::Read(std::span<const TokenId> ids, std::span<float> out) const {
  const auto cols = static_cast<size_t>(tensor_.cols());
  SYSONE_CHECK(out.size() >= ids.size() * cols, "%zu values for %zu rows", out.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    SYSONE_CHECK(ids[i] >= 0 && ids[i] < tensor_.rows(), "row %d of %lld", ids[i],
                 static_cast<long long>(tensor_.rows()));
    ReadRows(tensor_, ids[i], 1, out.data() + i * cols);
  }
}

}  // namespace sysone
