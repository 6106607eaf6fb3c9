// Names of Highway targets.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa.h"

#include <algorithm>
#include <cctype>

// Highway after isa.h, which says which targets to leave out.
#include "hwy/highway.h"

namespace sysone {
namespace {

constexpr int64_t kFallback = HWY_EMU128 | HWY_SCALAR;

int64_t Best(int64_t targets) { return targets & -targets; }  // lower bits are better

std::string LowerName(int64_t target) {
  if ((target & ~kFallback) == 0) return "portable";
  std::string name = hwy::TargetName(target);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

int64_t HostTargets() {
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS & ~kFallback;
#if HWY_ARCH_X86
  // Where the operating system has not enabled XSAVE, Highway 1.0.3 believes the processor alone, and AVX traps. The compiler's
  // own question asks both. Lower bits are better: AVX2 and all above it.
  if (!__builtin_cpu_supports("avx2")) targets &= ~(2 * int64_t{HWY_AVX2} - 1);
#endif
  return targets;
}

}  // namespace

std::vector<std::string> IsaNames() {
  std::vector<std::string> names;
  for (int64_t left = HostTargets(); left != 0; left &= left - 1)
    names.push_back(LowerName(Best(left)));
  names.push_back("portable");
  return names;
}

Result<int64_t> IsaTargets(const std::string& name) {
  if (name.empty() || name == "auto") return HostTargets();
  if (name == "portable") return int64_t{0};
  std::string known = "auto";
  for (int64_t left = HostTargets(); left != 0; left &= left - 1) {
    if (LowerName(Best(left)) == name)
      return left;  // and everything below, should a kernel lack it
    known += ", " + LowerName(Best(left));
  }
  return Error(Code::kInvalidArgument, "unknown instruction set '%s'; this host has: %s, portable",
               name.c_str(), known.c_str());
}

bool MultipliesIntegersFast(int64_t targets) {
  constexpr int64_t kSlow = kFallback | HWY_SSSE3 | HWY_SSE4;
  return (targets & ~kSlow) != 0;
}

std::string IsaName(int64_t targets) { return LowerName(Best(targets)); }

}  // namespace sysone
