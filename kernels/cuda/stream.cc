// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/stream.h"

#include "base/check.h"
#include "base/clock.h"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

// Longer than a pass of a few billion parameters over a few hundred tokens takes (2 ms), and than the 20 to 50 µs that waking
// up costs. What takes longer does not notice them.
constexpr int64_t kSpinUs = 3000;

}  // namespace

Stream::Stream() {
  SYSONE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  SYSONE_CUDA(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming | cudaEventBlockingSync));
}

Stream::~Stream() {
  SYSONE_CUDA(cudaEventDestroy(done_));
  SYSONE_CUDA(cudaStreamDestroy(stream_));
}

void Stream::Wait() {
  SYSONE_CHECK(!recording_, "a pass that is being recorded waits for results");
  SYSONE_CUDA(cudaEventRecord(done_, stream_));
  const int64_t spin_until_us = MonotonicUs() + kSpinUs;
  cudaError_t state = cudaEventQuery(done_);
  while (state == cudaErrorNotReady && MonotonicUs() < spin_until_us) state = cudaEventQuery(done_);
  if (state == cudaErrorNotReady) state = cudaEventSynchronize(done_);
  SYSONE_CUDA(state);
  ++waits_;
}

}  // namespace sysone
