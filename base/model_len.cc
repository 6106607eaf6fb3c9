// SPDX-License-Identifier: Apache-2.0
#include "base/model_len.h"

#include <algorithm>

namespace sysone {

Result<int32_t> EffectiveMaxModelLen(const ServeOptions& options, int64_t model_positions) {
  const long long asked = options.max_model_len;
  if (asked == 0) return static_cast<int32_t>(std::min(model_positions, kMaxModelLenDefault));
  if (asked > model_positions)
    return Error(Code::kInvalidArgument,
                 "--max-model-len %lld exceeds the model's own %lld positions; lower it", asked,
                 static_cast<long long>(model_positions));
  return static_cast<int32_t>(asked);
}

}  // namespace sysone
