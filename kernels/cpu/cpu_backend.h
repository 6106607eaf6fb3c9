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

// isa: "auto" or a name from IsaNames(); kInvalidArgument otherwise. threads: 0 as many as allowed.
Result<std::unique_ptr<Backend>> MakeCpuBackend(Dtype dtype, int threads, const std::string& isa);

}  // namespace sysone
