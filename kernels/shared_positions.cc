// SPDX-License-Identifier: Apache-2.0
#include "kernels/shared_positions.h"

#include <algorithm>

namespace sysone {

int32_t SharedPositions(const KvSpan* a, const KvSpan* b, int32_t limit) {
  // As a rule both lists begin with the very same spans.
  int32_t shared = 0;
  for (; shared < limit && a->first_row == b->first_row && a->count == b->count; ++a, ++b)
    shared += std::min(a->count, limit - shared);

  int32_t used_a = 0, used_b = 0;  // rows of the spans a and b
  while (shared < limit) {
    if (used_a == a->count) {
      ++a;
      used_a = 0;
    } else if (used_b == b->count) {
      ++b;
      used_b = 0;
    } else if (a->first_row + used_a != b->first_row + used_b) {
      break;
    } else {
      const int32_t step = std::min({a->count - used_a, b->count - used_b, limit - shared});
      shared += step;
      used_a += step;
      used_b += step;
    }
  }
  return shared;
}

}  // namespace sysone
