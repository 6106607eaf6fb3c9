// Which instruction set the vector kernels use. They are compiled for a few sets each and chosen
// when a backend is made, by a mask of Highway targets that is passed along, so that one process
// can hold backends of different sets (the tests do).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

// Left out to save compile time: hosts that have no more than SSSE3 run the portable code.
#define HWY_DISABLED_TARGETS HWY_SSSE3
// AVX-512 with VNNI, which Highway leaves out of itself.
#define HWY_WANT_AVX3_DL 1

namespace sysone {

// "auto" or "" and the sets that this host can run, best first; the last is "portable".
std::vector<std::string> IsaNames();
// The Highway targets that may be used for that name; kInvalidArgument lists the known ones.
Result<int64_t> IsaTargets(const std::string& name);
// Whether integer products are faster than float ones there.
bool MultipliesIntegersFast(int64_t targets);
// Name of the best of these targets.
std::string IsaName(int64_t targets);

}  // namespace sysone
