// SPDX-License-Identifier: Apache-2.0
#include "model/ggml_types.h"

namespace sysone {
namespace {

struct GgmlType {
  uint32_t number;
  const char* name;
  std::optional<TensorType> ours;
};

constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", TensorType::kF32},
    {1, "F16", TensorType::kF16},
    {2, "Q4_0", TensorType::kQ4_0},
    {3, "Q4_1", TensorType::kQ4_1},
    {6, "Q5_0", TensorType::kQ5_0},
    {7, "Q5_1", TensorType::kQ5_1},
    {8, "Q8_0", TensorType::kQ8_0},
    {9, "Q8_1", {}},
    {10, "Q2_K", {}},
    {11, "Q3_K", {}},
    {12, "Q4_K", TensorType::kQ4_K},
    {13, "Q5_K", TensorType::kQ5_K},
    {14, "Q6_K", TensorType::kQ6_K},
    {15, "Q8_K", {}},
    {16, "IQ2_XXS", {}},
    {17, "IQ2_XS", {}},
    {18, "IQ3_XXS", {}},
    {19, "IQ1_S", {}},
    {20, "IQ4_NL", {}},
    {21, "IQ3_S", {}},
    {22, "IQ2_S", {}},
    {23, "IQ4_XS", {}},
    {24, "I8", {}},
    {25, "I16", {}},
    {26, "I32", {}},
    {27, "I64", {}},
    {28, "F64", {}},
    {29, "IQ1_M", {}},
    {30, "BF16", TensorType::kBF16},
    {34, "TQ1_0", {}},
    {35, "TQ2_0", {}},
    {39, "MXFP4", {}},
    {40, "NVFP4", {}},
    {41, "Q1_0", {}},
};

}  // namespace

std::optional<TensorType> TensorTypeOfGgml(uint32_t type) {
  for (const GgmlType& known : kGgmlTypes)
    if (known.number == type) return known.ours;
  return std::nullopt;
}

std::string GgmlTypeName(uint32_t type) {
  for (const GgmlType& known : kGgmlTypes)
    if (known.number == type) return known.name;
  return "number " + std::to_string(type) + " (unknown)";
}

}  // namespace sysone
