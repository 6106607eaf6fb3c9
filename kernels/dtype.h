// Precision of weights and of matrix products, as --dtype names it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sysone {

// kInt8: weights of products in int8 with a scale a group (kernels/int8.h), embedding and head in
// bfloat16.
enum class Dtype { kFloat32, kBfloat16, kInt8 };

// How finely a model's file keeps most of its weights: kCoarse on up to 32 levels for a block of 32 (4 and 5 bits), kFine all
// else. kInt8 is finer, and slower, for the latter.
enum class WeightGrain { kCoarse, kFine };

// As --dtype spells it.
inline const char* DtypeName(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kInt8:
      return "int8";
  }
  return "";
}

}  // namespace sysone
