// How fast a group computes, measured over its own passes: what placement divides outstanding work by. Kept by the group's
// worker, who alone writes the result to the load board, and gone with it; pure, so that tests simulate minutes in moments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "shm_arena/load_board.h"

namespace sysone {

// Computed tokens ÷ time in passes. Each pass weighs as much as it lasted, less the more time was spent in later ones, so
// that a short odd pass changes little. One thread.
class RateMeter {
 public:
  // Time in passes after which an older one weighs 1/e: some hundred passes of a small model, several of a large one, so
  // that the rate is no accident of a few; and yet it follows the machine within seconds.
  static constexpr double kMemoryS = 5;
  // Time in passes, as it weighs, from which on the rate counts as known (1.1 s of real time). The first passes after a
  // start are cold, and groups that start together disturb each other's; they take some tens of milliseconds. At a third of
  // the speed for a tenth of this time they make the first known rate 7 % too low, which placement takes for noise
  // (kEqualRateShare). Waiting costs little: until then a group counts as being as fast as the others.
  static constexpr double kKnownAfterS = 1;
  // A group that computed nothing for so long is measured anew. Else one that was measured while something slowed it down
  // would, where the others have time for everything, never get the work that shows that it is well again. A group that is
  // really slower costs a light load a second of trying it out every minute.
  static constexpr int64_t kForgetAfterUs = 60'000'000;

  // A pass that ended at `now_us` (MonotonicUs). Without tokens (every state was stored) or time it says nothing.
  void Record(uint64_t tokens, uint64_t busy_us, int64_t now_us);

  GroupRate Rate(int64_t now_us) const;

 private:
  bool Outdated(int64_t now_us) const { return now_us - last_us_ > kForgetAfterUs; }

  // Sums over the passes, weighed.
  double tokens_ = 0;
  double passes_ = 0;
  double busy_s_ = 0;  // below kMemoryS
  int64_t last_us_ = 0;
};

}  // namespace sysone
