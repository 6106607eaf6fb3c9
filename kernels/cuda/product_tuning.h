// Times algorithms of one product on the device, for --preload-autotune.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/product_plan.h"

namespace sysone {

// Milliseconds of each candidate, the median of several runs, each with the device's cache emptied before; infinite where one
// cannot be run. Waits for the device, and allocates: not while the stream captures. buffers.out is left as it was if `add`,
// else undefined; the plan's algorithm is undefined.
std::vector<float> TimeCandidates(ProductPlan& plan,
                                  std::span<const cublasLtMatmulAlgo_t> candidates,
                                  const ProductBuffers& buffers, bool add,
                                  const ProductWorkspace& workspace, cudaStream_t stream);

}  // namespace sysone
