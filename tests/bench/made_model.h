// Models of well-known shapes with random weights, made in memory: speed and what a pass consists of depend on the shape alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model_config.h"
#include "model/tensor_index.h"

namespace sysone {

struct MadeModel {
  ModelConfig config;
  TensorIndex tensors;  // bfloat16, norms float32
};

// "qwen3-0.6b", "qwen2.5-3b", and "tiny" for tests.
std::vector<std::string> MadeModelNames();

// `layers`: 0 for as many as the model has. All matrices are views of one block of random values (normal, deviation 1/sqrt of the
// hidden size), as large as the largest of them, so that a model of gigabytes takes little memory here. kInvalidArgument names an
// unknown model.
Result<MadeModel> MakeModel(const std::string& name, int32_t layers = 0);

}  // namespace sysone
