// The oracle that every other backend is compared with: scalar loops in the order of the formulas,
// sums in double. Slow on purpose; also a working backend (--backend reference) for telling a wrong
// model from a wrong kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/dtype.h"

namespace sysone {

// With kBfloat16, matrices and tables are rounded once at load; with kInt8, matrices to int8 with a
// scale a group and tables to bfloat16. Everything else is as with kFloat32: the activations of an
// int8 product, too, are not rounded. grain: what Backend::SetWeightGrain says if none.
std::unique_ptr<Backend> MakeReferenceBackend(Dtype dtype, std::optional<WeightGrain> grain = {});

}  // namespace sysone
