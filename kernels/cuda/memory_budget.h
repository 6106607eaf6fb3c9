// How much of the device's memory a backend may take, and what to say when that is not enough: loading goes on without reading
// anything, so that in the end it is known how much all of it takes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/device_memory.h"

namespace sysone {

class MemoryBudget {
 public:
  // `utilization`: share of the device's memory that the backend uses at most, 0 … 1, with all that it has on the device.
  // `at_start`: before it made anything. `reserve`: bytes to leave for what is made later without asking (recorded passes). `now`
  // is asked each time.
  MemoryBudget(double utilization, DeviceMemory at_start, int64_t reserve,
               std::function<DeviceMemory()> now = DeviceMemoryNow)
      : utilization_(utilization), at_start_(at_start), reserve_(reserve), now_(std::move(now)) {}

  // Whether `bytes` more fit. From the first time that they do not on, nothing does.
  bool Take(int64_t bytes);
  // kOutOfMemory once something did not fit.
  Status status() const;
  // What Take would give at most.
  int64_t Left() const { return Left(now_()); }

 private:
  int64_t Left(DeviceMemory now) const;

  double utilization_;
  DeviceMemory at_start_;
  int64_t reserve_;
  std::function<DeviceMemory()> now_;
  // Once something did not fit: all that was asked for, and what there was in the beginning, both with what was loaded.
  int64_t needed_ = 0, had_ = 0;
};

}  // namespace sysone
