// ggml's tensor type numbers, as GGUF files carry them: which ones we read, and the names of the
// others for error texts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/tensor_index.h"

namespace sysone {

// nullopt for a type that we do not read, known or not.
std::optional<TensorType> TensorTypeOfGgml(uint32_t type);

// "IQ4_NL", or "number 99 (unknown)".
std::string GgmlTypeName(uint32_t type);

}  // namespace sysone
