// SPDX-License-Identifier: Apache-2.0
#include "base/model_len.h"

#include <algorithm>

namespace sysone {

Result<int32_t> EffectiveMaxModelLen(const ServeOptions& options, int64_t model_positions) {
  const long long asked = options.max_model_len;
  if (asked == 0)
    return static_cast<int32_t>(
        std::min({model_positions, options.max_num_batched_tokens, kMaxModelLenDefault}));
  if (asked > model_positions)
    return Error(Code::kInvalidArgument,
                 "--max-model-len %lld exceeds the model's own %lld positions; lower it", asked,
                 static_cast<long long>(model_positions));
  if (asked > options.max_num_batched_tokens)
    return Error(Code::kInvalidArgument,
                 "--max-model-len %lld exceeds --max-num-batched-tokens %lld; lower the one or "
                 "raise the other",
                 asked, static_cast<long long>(options.max_num_batched_tokens));
  return static_cast<int32_t>(asked);
}

}  // namespace sysone
