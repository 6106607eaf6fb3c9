// The streams of the emulated CUDA device.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulation/emulation.h"
#include "tests/worker/comm/fake_nccl/run_on_stream.h"

namespace sysone {

void RunOnStream(cudaStream_t stream, std::function<void()> work) {
  emulation::Enqueue(stream, [work = std::move(work)] {
    work();
    return true;
  });
}

}  // namespace sysone
