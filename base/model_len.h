// The longest prompt that is served, as API servers and workers both compute it from the same options.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

// --max-model-len when given: kInvalidArgument when it exceeds what the model was trained for (`model_positions`). Else the
// smaller of that and kMaxModelLenDefault.
Result<int32_t> EffectiveMaxModelLen(const ServeOptions& options, int64_t model_positions);

}  // namespace sysone
