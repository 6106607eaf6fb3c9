// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_budget.h"

#include <algorithm>

namespace sysone {

int64_t MemoryBudget::Left(DeviceMemory now) const {
  const auto most = static_cast<int64_t>(utilization_ * static_cast<double>(now.total));
  const int64_t own = std::max<int64_t>(at_start_.free - now.free, 0);
  return std::max<int64_t>(std::min(most - own, now.free) - reserve_, 0);
}

bool MemoryBudget::Take(int64_t bytes) {
  if (needed_ == 0) {
    const DeviceMemory now = now_();
    const int64_t left = Left(now);
    if (bytes <= left) return true;
    const int64_t own = std::max<int64_t>(at_start_.free - now.free, 0);
    needed_ = own;
    had_ = own + left;
  }
  needed_ += bytes;
  return false;
}

Status MemoryBudget::status() const {
  if (needed_ == 0) return {};
  const auto mib = [](int64_t bytes) {
    return static_cast<long long>((bytes + (1 << 20) - 1) >> 20);
  };
  return Error(Code::kOutOfMemory,
               "the model needs %lld MiB of the device's memory and there are %lld MiB for it: "
               "%lld of %lld MiB were free at the start, --gpu-memory-utilization %.2f; give "
               "--dtype int8 or fp8, a larger --tensor-parallel-size, a smaller "
               "--max-num-batched-tokens or --kv-cache-memory, or a larger "
               "--gpu-memory-utilization",
               mib(needed_), mib(had_), mib(at_start_.free), mib(at_start_.total), utilization_);
}

}  // namespace sysone
