// The parts that layers are made of, and how each is loaded from a checkpoint.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/tensor_index.h"
#include "worker/decoder.h"
#include "worker/shard.h"

namespace sysone {

// Rows of a slice of the feed-forward part: enough to keep a matrix product efficient, few enough
// that the widest buffer (gate | up) stays in the tens of megabytes.
inline constexpr int32_t kFeedForwardRows = 512;

// What a part is built from: where its weights are, and which layer it stands in.
struct PartSource {
  Backend& backend;
  const ModelConfig& config;
  const TensorIndex& tensors;
  const RopeTable& rope;
  const Shard& shard;  // which part of each is loaded
  size_t layer;
};

// Grouped-query attention with rotary positions; optional q/k norms and q/k/v biases as the config
// says.
Result<std::unique_ptr<LayerPart>> LoadAttention(const PartSource& source);

// down(silu(gate(x)) * up(x)).
Result<std::unique_ptr<LayerPart>> LoadGatedSilu(const PartSource& source);

}  // namespace sysone
