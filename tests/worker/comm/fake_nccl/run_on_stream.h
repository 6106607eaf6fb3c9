// Where the fake NCCL's sums run: behind what the stream has been given so far.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <functional>

namespace sysone {

void RunOnStream(cudaStream_t stream, std::function<void()> work);

}  // namespace sysone
