// Precision of weights and of matrix products, as --dtype names it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sysone {

enum class Dtype { kFloat32, kBfloat16 };

// As --dtype spells it.
inline const char* DtypeName(Dtype dtype) {
  return dtype == Dtype::kFloat32 ? "float32" : "bfloat16";
}

}  // namespace sysone
