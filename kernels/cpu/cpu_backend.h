// The backend for CPUs: vector kernels for whatever instruction set the host has, weights in int8,
// bfloat16 or float32, activations in float32 but where a product wants them narrower.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"

namespace sysone {

enum class MatMulChoice {
  kFastest,  // oneDNN for bfloat16 on hosts with such instructions, otherwise our own kernels
  kOnednn,   // oneDNN; kUnsupported if it has nothing for the type on this host
};

// dtype: none is int8 where the instruction set multiplies small integers faster than floats (AVX2
// and better), else float32. grain: what Backend::SetWeightGrain says if none. isa: "auto" or a name from IsaNames(); kInvalidArgument otherwise. threads: 0 as many as allowed.
Result<std::unique_ptr<Backend>> MakeCpuBackend(std::optional<Dtype> dtype, int threads,
                                                const std::string& isa, MatMulChoice matmul,
                                                std::optional<WeightGrain> grain);

}  // namespace sysone
