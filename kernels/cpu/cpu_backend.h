// The backend for CPUs: vector kernels for whatever instruction set the host has, weights in
// bfloat16 or float32, activations in float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"

namespace sysone {

enum class MatMulChoice {
  kFastest,  // oneDNN for bfloat16 on hosts with such instructions, otherwise our own kernels
  kOnednn,   // oneDNN; kUnsupported if it has nothing for the type on this host
};

// isa: "auto" or a name from IsaNames(); kInvalidArgument otherwise. threads: 0 as many as allowed.
Result<std::unique_ptr<Backend>> MakeCpuBackend(Dtype dtype, int threads, const std::string& isa,
                                                MatMulChoice matmul);

}  // namespace sysone
