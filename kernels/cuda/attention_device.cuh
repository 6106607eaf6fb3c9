// What both attention kernels share: keys found through spans, and what a softmax starts from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_kernels.h"

namespace sysone {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

// Below every score of a row that was not yet looked at. Finite, so that what is subtracted from it is a number.
inline constexpr float kNothingSeen = -3.4e38f;

// Finds the rows of the store that hold a run's positions, asked for in ascending order.
struct KeyCursor {
  const DeviceSpan* span;  // of the position asked for last, or an earlier one
  int32_t before;          // rows of the spans before the run's first
  int32_t end;             // first position behind the span
  int32_t offset;          // from a position in the span to its row

  // At span `from` of the run whose first one is `first`.
  __device__ void Start(const DeviceSpan* spans, int32_t first, int32_t from) {
    before = spans[first].count;
    span = spans + from;
    Read();
  }
  // The same, and on to the span that holds `position`. Spans from `to` on are behind it.
  __device__ void Start(const DeviceSpan* spans, int32_t first, int32_t from, int32_t to,
                        int32_t position) {
    Start(spans, first, from);
    if (position < end) return;
    while (to - from > 1) {
      const int32_t middle = (from + to) / 2;
      if (spans[middle].count - before <= position)
        from = middle;
      else
        to = middle;
    }
    span = spans + from;
    Read();
  }
  __device__ int32_t RowOf(int32_t position) {
    while (position >= end) {
      ++span;
      Read();
    }
    return position + offset;
  }

 private:
  __device__ void Read() {
    end = span[1].count - before;
    offset = span[0].first_row - (span[0].count - before);
  }
};

}  // namespace sysone
