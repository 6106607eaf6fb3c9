// What all families and file kinds share: tensor names, the shapes that follow from a config, and
// the checks.
// SPDX-License-Identifier: Apache-2.0
#include "model/model_config.h"

#include <string_view>
#include <unordered_set>

#include "model/tensor_index.h"

namespace sysone {
namespace {

// Far above any model, and keeps every product of two sizes well inside 64 bits.
constexpr int32_t kLargestSize = 1 << 26;

}  // namespace

std::string LayerTensorName(const std::string& pattern, size_t layer) {
  const size_t at = pattern.find("{}");
  SYSONE_CHECK(at != std::string::npos, "\"%s\" has no place for a layer", pattern.c_str());
  return pattern.substr(0, at) + std::to_string(layer) + pattern.substr(at + 2);
}

TensorNames HfTensorNames(const ModelConfig& config) {
  TensorNames names;
  names.embedding = "model.embed_tokens.weight";
  names.final_norm = "model.norm.weight";
  if (!config.tied_head) names.head = "lm_head.weight";
  names.mixer_norm = "model.layers.{}.input_layernorm.weight";
  names.feed_forward_norm = "model.layers.{}.post_attention_layernorm.weight";
  names.q = "model.layers.{}.self_attn.q_proj.weight";
  names.k = "model.layers.{}.self_attn.k_proj.weight";
  names.v = "model.layers.{}.self_attn.v_proj.weight";
  names.o = "model.layers.{}.self_attn.o_proj.weight";
  if (config.qkv_bias) {
    names.q_bias = "model.layers.{}.self_attn.q_proj.bias";
    names.k_bias = "model.layers.{}.self_attn.k_proj.bias";
    names.v_bias = "model.layers.{}.self_attn.v_proj.bias";
  }
  if (config.qk_norm) {
    names.q_norm = "model.layers.{}.self_attn.q_norm.weight";
    names.k_norm = "model.layers.{}.self_attn.k_norm.weight";
  }
  names.gate = "model.layers.{}.mlp.gate_proj.weight";
  names.up = "model.layers.{}.mlp.up_proj.weight";
  names.down = "model.layers.{}.mlp.down_proj.weight";
  return names;
}

TensorNames GgufTensorNames(const ModelConfig& config) {
  TensorNames names;
  names.embedding = "token_embd.weight";
  names.final_norm = "output_norm.weight";
  if (!config.tied_head) names.head = "output.weight";
  names.mixer_norm = "blk.{}.attn_norm.weight";
  names.feed_forward_norm = "blk.{}.ffn_norm.weight";
  names.q = "blk.{}.attn_q.weight";
  names.k = "blk.{}.attn_k.weight";
  names.v = "blk.{}.attn_v.weight";
  names.o = "blk.{}.attn_output.weight";
  if (config.qkv_bias) {
    names.q_bias = "blk.{}.attn_q.bias";
    names.k_bias = "blk.{}.attn_k.bias";
    names.v_bias = "blk.{}.attn_v.bias";
  }
  if (config.qk_norm) {
    names.q_norm = "blk.{}.attn_q_norm.weight";
    names.k_norm = "blk.{}.attn_k_norm.weight";
  }
  names.gate = "blk.{}.ffn_gate.weight";
  names.up = "blk.{}.ffn_up.weight";
  names.down = "blk.{}.ffn_down.weight";
  return names;
}

void ExtendByYarn(ModelConfig& config) {
  const double scaled = config.rope.original_max_positions * config.rope.factor;
  if (scaled > config.max_positions && scaled <= kLargestSize)
    config.max_positions = static_cast<int32_t>(scaled);
}

Status CheckConfig(const ModelConfig& config) {
  const struct {
    const char* what;
    int32_t value;
  } sizes[] = {{"hidden size", config.hidden},
               {"number of heads", config.heads},
               {"number of key/value heads", config.kv_heads},
               {"head dimension", config.head_dim},
               {"feed-forward size", config.intermediate},
               {"vocabulary size", config.vocab},
               {"maximum of positions", config.max_positions}};
  for (const auto& size : sizes)
    if (size.value <= 0 || size.value > kLargestSize)
      return Error(Code::kCorrupt, "the %s is %d", size.what, size.value);
  if (config.layers.empty()) return Error(Code::kCorrupt, "the model has no layers");
  if (config.heads % config.kv_heads != 0)
    return Error(Code::kCorrupt, "%d heads are no multiple of %d key/value heads", config.heads,
                 config.kv_heads);
  if (config.head_dim % 2 != 0)
    return Error(Code::kCorrupt, "the head dimension %d is odd, rotation needs pairs",
                 config.head_dim);
  if (!(config.norm_eps > 0 && config.norm_eps < 1))
    return Error(Code::kCorrupt, "the norm's epsilon is %g", static_cast<double>(config.norm_eps));
  if (!(config.rope.theta > 0))
    return Error(Code::kCorrupt, "the rotary base is %g", config.rope.theta);
  if (!config.rope.frequency_divisors.empty() &&
      config.rope.frequency_divisors.size() != static_cast<size_t>(config.head_dim / 2))
    return Error(Code::kCorrupt, "%zu rotary frequency divisors for a head dimension of %d",
                 config.rope.frequency_divisors.size(), config.head_dim);
  return Status();
}

namespace {

// Checks the named tensors one by one and remembers which were asked for.
class Checker {
 public:
  Checker(const TensorIndex& tensors) : tensors_(tensors) {}

  Status Expect(const std::string& name, const std::vector<int64_t>& shape) {
    if (name.empty()) return Status();
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* const tensor, tensors_.Get(name, shape));
    expected_.insert(tensor->name);
    return Status();
  }

  Status ExpectInLayer(const std::string& pattern, size_t layer,
                       const std::vector<int64_t>& shape) {
    return pattern.empty() ? Status() : Expect(LayerTensorName(pattern, layer), shape);
  }

  Status RefuseOthers(const ModelConfig& config) const {
    for (const TensorInfo& tensor : tensors_.tensors())
      if (!expected_.count(tensor.name) && !IsIgnored(config, tensor.name))
        return Error(Code::kUnsupported, "tensor \"%s\" is no part of a %s model that we know",
                     tensor.name.c_str(), config.family.c_str());
    return Status();
  }

 private:
  // Old checkpoints store the rotary frequencies (recomputed here), and some tied ones the head as
  // well.
  static bool IsIgnored(const ModelConfig& config, std::string_view name) {
    return name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight" ||
           (config.tied_head && name == "lm_head.weight");
  }

  const TensorIndex& tensors_;
  std::unordered_set<std::string_view> expected_;
};

}  // namespace

Status ValidateTensors(const ModelConfig& config, const TensorIndex& tensors) {
  const TensorNames& names = config.names;
  const int64_t hidden = config.hidden, inter = config.intermediate, vocab = config.vocab;
  const int64_t head_dim = config.head_dim;
  const int64_t q_rows = config.heads * head_dim, kv_rows = config.kv_heads * head_dim;
  Checker checker(tensors);
  SYSONE_RETURN_IF_ERROR(checker.Expect(names.embedding, {vocab, hidden}));
  SYSONE_RETURN_IF_ERROR(checker.Expect(names.final_norm, {hidden}));
  SYSONE_RETURN_IF_ERROR(checker.Expect(names.head, {vocab, hidden}));
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const struct {
      const std::string& pattern;
      std::vector<int64_t> shape;
    } parts[] = {{names.mixer_norm, {hidden}},        {names.q, {q_rows, hidden}},
                 {names.k, {kv_rows, hidden}},        {names.v, {kv_rows, hidden}},
                 {names.o, {hidden, q_rows}},         {names.q_bias, {q_rows}},
                 {names.k_bias, {kv_rows}},           {names.v_bias, {kv_rows}},
                 {names.q_norm, {head_dim}},          {names.k_norm, {head_dim}},
                 {names.feed_forward_norm, {hidden}}, {names.gate, {inter, hidden}},
                 {names.up, {inter, hidden}},         {names.down, {hidden, inter}}};
    for (const auto& part : parts)
      SYSONE_RETURN_IF_ERROR(checker.ExpectInLayer(part.pattern, layer, part.shape));
  }
  return checker.RefuseOthers(config);
}

}  // namespace sysone
