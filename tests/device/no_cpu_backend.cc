// Stands in for kernels/cpu/isa.cc where the CPU backend is not built.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa.h"

namespace sysone {

std::vector<std::string> IsaNames() { return {}; }

}  // namespace sysone
