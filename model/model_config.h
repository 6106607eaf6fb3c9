// What a checkpoint says of its architecture, in one vocabulary for all families and file formats. A family is a
// composition: per layer a token mixer and a feed-forward part, around them norms; a new family adds parts, not copies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace sysone {

// How the rotary frequencies are stretched for contexts longer than those of training.
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
  double attention_factor = 0;         // yarn; 0: 0.1 * ln(factor) + 1
  std::vector<float> frequency_divisors;  // GGUF rope_freqs.weight [head_dim / 2]; empty: none
};

enum class MixerKind : uint8_t { kAttention };        // to come: short convolution, gated delta
enum class FeedForwardKind : uint8_t { kGatedSilu };  // to come: mixture of experts

// One layer's parts; layers may differ.
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
  // GGUF's llama layout stores the q and k rows (and biases) of each head for rotation of neighbours (2i, 2i+1): stored
  // row 2i + j is row j * head_dim / 2 + i of the half-and-half layout. Undone by whoever loads them.
  bool qk_rows_interleaved = false;
  RopeConfig rope;
  std::vector<LayerConfig> layers;
  TensorNames names;
};

// The name of a layer's tensor: "blk.{}.attn_q.weight", 3 → "blk.3.attn_q.weight".
std::string LayerTensorName(const std::string& pattern, size_t layer);

// Names of Hugging Face checkpoints and of GGUF files. The optional ones (head, biases, q/k norms) are named only when
// the config has them, so fill in the flags first.
TensorNames HfTensorNames(const ModelConfig& config);
TensorNames GgufTensorNames(const ModelConfig& config);

// `text` of an HF config.json. kUnsupported names the model_type or the field that we cannot serve.
// Reads both the old keys (rope_theta, rope_scaling) and those of transformers 5 (rope_parameters).
Result<ModelConfig> ReadHfConfig(const std::string& text);

// The same from GGUF metadata; the tensor directory tells whether head and biases exist.
class GgufFile;
Result<ModelConfig> ReadGgufConfig(const GgufFile& file);

// Every tensor that the config promises exists with the right shape (kCorrupt, naming the tensor and both shapes), and
// there is none that it does not know (kUnsupported: a part of the model would be left out silently).
class TensorIndex;
Status ValidateTensors(const ModelConfig& config, const TensorIndex& tensors);

// For both readers, when a config has YaRN: published checkpoints state the length before scaling, so max_positions becomes
// at least original_max_positions * factor.
void ExtendByYarn(ModelConfig& config);

// The rules that both readers check last: positive sizes, heads a multiple of kv_heads, an even head_dim.
Status CheckConfig(const ModelConfig& config);

}  // namespace sysone
