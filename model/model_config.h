// What a checkpoint says of its architecture, in one vocabulary for all families and file formats. A family is a
// composition: per layer a token mixer and a feed-forward part, around them norms; a new family adds parts, not copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace sysone {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double original_max_positions = 0;   // llama3, yarn
  double low_freq_factor = 1;          // llama3
  double high_freq_factor = 4;         // llama3
  double beta_fast = 32;               // yarn
  double beta_slow = 1;                // yarn
  double attention_factor = 0;         // yarn; 0: derived from factor
  std::vector<float> frequency_divisors;  // GGUF rope_freqs.weight [head_dim / 2]; empty: none
};

enum class MixerKind : uint8_t { kAttention };        // to come: short convolution, gated delta
enum class FeedForwardKind : uint8_t { kGatedSilu };  // to come: mixture of experts

struct LayerConfig {
  MixerKind mixer = MixerKind::kAttention;
  FeedForwardKind feed_forward = FeedForwardKind::kGatedSilu;
};

// Where a checkpoint keeps each weight; "{}" stands for the layer's number. Empty: the family has no such tensor.
struct TensorNames {
  std::string embedding, final_norm, head;
  std::string mixer_norm, feed_forward_norm;
  std::string q, k, v, o, q_bias, k_bias, v_bias, q_norm, k_norm;
  std::string gate, up, down;
};

struct ModelConfig {
  std::string family;         // "llama", "qwen2", "qwen3"
  int32_t hidden = 0;
  int32_t heads = 0;          // query heads
  int32_t kv_heads = 0;
  int32_t head_dim = 0;       // not always hidden / heads
  int32_t intermediate = 0;
  int32_t vocab = 0;          // rows of the embedding; may exceed the tokenizer's
  int32_t max_positions = 0;
  float norm_eps = 1e-6f;
  bool tied_head = false;     // the head is the embedding
  bool qkv_bias = false;
  bool qk_norm = false;       // RMSNorm of each q and k head before RoPE
  // GGUF's llama layout stores q and k rows for rotation of neighbours (2i, 2i+1); undone when they are loaded.
  bool qk_rows_interleaved = false;
  RopeConfig rope;
  std::vector<LayerConfig> layers;
  TensorNames names;
};

// `text` of an HF config.json. kUnsupported names the model_type or the field that we cannot serve.
// Reads both the old keys (rope_theta, rope_scaling) and those of transformers 5 (rope_parameters).
Result<ModelConfig> ReadHfConfig(const std::string& text);

class GgufFile;
Result<ModelConfig> ReadGgufConfig(const GgufFile& file);

}  // namespace sysone
