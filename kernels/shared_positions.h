// How much of two sequences lies in the same rows of a store. Pure; both backends that cut runs into tiles ask it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace sysone {

// How many positions from 0 on lie in the same rows of the store for both, looking at the first `limit` only. Both lists hold
// that many.
int32_t SharedPositions(const KvSpan* a, const KvSpan* b, int32_t limit);

}  // namespace sysone
