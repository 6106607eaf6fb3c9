// Picks a per-target function from the table that HWY_EXPORT makes, by our own mask instead of
// Highway's global choice. Include after hwy/highway.h, only where HWY_ONCE holds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hwy/highway.h"

namespace sysone {

// The function of the best instruction set among `targets`, out of a table that Highway made.
template <class Function, size_t kEntries>
Function PickTarget(Function const (&table)[kEntries], int64_t targets) {
  if (kEntries == 1) return table[0];  // built for one target only
  hwy::ChosenTarget chosen;
  chosen.Update(targets);
  return table[chosen.GetIndex()];
}

}  // namespace sysone
