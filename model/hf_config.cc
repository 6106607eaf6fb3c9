// A ModelConfig from a Hugging Face config.json. Fields that change the computation and that we do not serve are refused
// by name; those that only matter in training are not looked at.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "base/json.h"
#include "model/model_config.h"

namespace sysone {
namespace {

struct Family {
  const char* model_type;
  const char* architecture;
  bool qkv_bias;
  bool qk_norm;
  int32_t head_dim;  // when the config has none; 0: hidden / heads
};

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", false, false, 0},
    {"qwen2", "Qwen2ForCausalLM", true, false, 0},
    {"qwen3", "Qwen3ForCausalLM", false, true, 128},
};

// A field that is there and not null, as Python's `config.get(name) is not None`.
const Json* Present(const Json& object, std::string_view name) {
  const Json* const field = object.Find(name);
  return field == nullptr || field->is_null() ? nullptr : field;
}

Result<int32_t> Size(const Json& config, const char* name) {
  const Json* const field = Present(config, name);
  if (field == nullptr) return Error(Code::kCorrupt, "\"%s\" is missing", name);
  const auto value = field->AsInt64();
  if (!value || *value <= 0 || *value > std::numeric_limits<int32_t>::max())
    return Error(Code::kCorrupt, "\"%s\" is %s", name, field->Dump().c_str());
  return static_cast<int32_t>(*value);
}

Result<int32_t> Size(const Json& config, const char* name, int32_t absent) {
  if (Present(config, name) == nullptr) return absent;
  return Size(config, name);
}

Result<double> Number(const Json& object, const char* name, double absent) {
  const Json* const field = Present(object, name);
  if (field == nullptr) return absent;
  const auto value = field->AsDouble();
  if (!value || !std::isfinite(*value))
    return Error(Code::kCorrupt, "\"%s\" is %s", name, field->Dump().c_str());
  return *value;
}

Result<bool> Flag(const Json& config, const char* name) {
  const Json* const field = Present(config, name);
  if (field == nullptr) return false;
  if (!field->is_bool()) return Error(Code::kCorrupt, "\"%s\" is %s", name, field->Dump().c_str());
  return field->boolean();
}

Status RefuseFlag(const Json& config, const char* name, const char* why) {
  SYSONE_ASSIGN_OR_RETURN(const bool set, Flag(config, name));
  if (set) return Error(Code::kUnsupported, "\"%s\" is true: %s", name, why);
  return Status();
}

// Which family, and that the checkpoint is its causal language model and not, say, a classifier on the same body.
Result<Family> FindFamily(const Json& config) {
  const Json* const type = Present(config, "model_type");
  if (type == nullptr || !type->is_string())
    return Error(Code::kCorrupt, "\"model_type\" is missing");
  const auto family =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family& candidate) { return type->string() == candidate.model_type; });
  if (family == std::end(kFamilies))
    return Error(Code::kUnsupported, "model_type \"%s\"; supported: llama, qwen2, qwen3",
                 type->string().c_str());
  const Json* const architectures = Present(config, "architectures");
  if (architectures == nullptr) return *family;
  if (!architectures->is_array())
    return Error(Code::kCorrupt, "\"architectures\" is %s", architectures->Dump().c_str());
  for (const Json& architecture : architectures->items())
    if (architecture.is_string() && architecture.string() == family->architecture) return *family;
  return Error(Code::kUnsupported, "\"architectures\" is %s; supported for %s: %s",
               architectures->Dump().c_str(), family->model_type, family->architecture);
}

Status RefuseWhatWeLack(const Json& config) {
  if (Present(config, "quantization_config") != nullptr)
    return Error(Code::kUnsupported,
                 "\"quantization_config\": quantised safetensors are not supported, only GGUF is");
  const Json* const activation = Present(config, "hidden_act");
  if (activation != nullptr && (!activation->is_string() || (activation->string() != "silu" &&
                                                             activation->string() != "swish")))
    return Error(Code::kUnsupported, "\"hidden_act\" is %s; supported: \"silu\"",
                 activation->Dump().c_str());
  SYSONE_RETURN_IF_ERROR(
      RefuseFlag(config, "attention_bias", "a bias on the output projection is not supported"));
  SYSONE_RETURN_IF_ERROR(
      RefuseFlag(config, "mlp_bias", "biases in the feed-forward part are not supported"));
  SYSONE_RETURN_IF_ERROR(
      RefuseFlag(config, "use_sliding_window", "sliding windows are not supported"));
  if (const Json* const types = Present(config, "layer_types")) {
    if (!types->is_array())
      return Error(Code::kCorrupt, "\"layer_types\" is %s", types->Dump().c_str());
    for (const Json& type : types->items())
      if (!type.is_string() || type.string() != "full_attention")
        return Error(Code::kUnsupported, "\"layer_types\" has %s; supported: \"full_attention\"",
                     type.Dump().c_str());
  }
  return Status();
}

// YaRN's factor on cos and sin: stated, or from the two "mscale" numbers; 0 leaves the usual 0.1 ln(factor) + 1.
Result<double> YarnAttentionFactor(const Json& rope, double factor) {
  SYSONE_ASSIGN_OR_RETURN(const double stated, Number(rope, "attention_factor", 0));
  if (stated != 0) return stated;
  SYSONE_ASSIGN_OR_RETURN(const double scale, Number(rope, "mscale", 0));
  SYSONE_ASSIGN_OR_RETURN(const double scale_all, Number(rope, "mscale_all_dim", 0));
  if (scale == 0 || scale_all == 0 || factor <= 1) return 0.0;
  return (0.1 * scale * std::log(factor) + 1) / (0.1 * scale_all * std::log(factor) + 1);
}

Status ReadYarn(const Json& rope, ModelConfig& config) {
  RopeConfig& out = config.rope;
  out.scaling = RopeScaling::kYarn;
  SYSONE_ASSIGN_OR_RETURN(out.beta_fast, Number(rope, "beta_fast", 32));
  SYSONE_ASSIGN_OR_RETURN(out.beta_slow, Number(rope, "beta_slow", 1));
  SYSONE_ASSIGN_OR_RETURN(out.attention_factor, YarnAttentionFactor(rope, out.factor));
  if (const Json* const truncate = Present(rope, "truncate");
      truncate != nullptr && !(truncate->is_bool() && truncate->boolean()))
    return Error(Code::kUnsupported, "rope \"truncate\" is %s; supported: true",
                 truncate->Dump().c_str());
  ExtendByYarn(config);
  return Status();
}

// `rope` is rope_parameters (transformers 5) or rope_scaling; the base may lie in it or beside it.
Status ReadScaling(const Json& rope, ModelConfig& config) {
  RopeConfig& out = config.rope;
  if (!rope.is_object()) return Error(Code::kCorrupt, "rope settings are %s", rope.Dump().c_str());
  for (const auto& [key, value] : rope.members())
    if (value.is_object())
      return Error(Code::kUnsupported, "rope settings for \"%s\" alone are not supported",
                   key.c_str());
  SYSONE_ASSIGN_OR_RETURN(out.theta, Number(rope, "rope_theta", out.theta));
  SYSONE_ASSIGN_OR_RETURN(const double rotated, Number(rope, "partial_rotary_factor", 1));
  if (rotated != 1)
    return Error(Code::kUnsupported, "\"partial_rotary_factor\" is %g; supported: 1", rotated);
  const Json* type = Present(rope, "rope_type");
  if (type == nullptr) type = Present(rope, "type");
  if (type == nullptr) {
    if (Present(rope, "factor") != nullptr)
      return Error(Code::kCorrupt, "rope settings have a factor and no rope_type");
    return Status();
  }
  const std::string name = type->is_string() ? type->string() : type->Dump();
  if (name == "default") return Status();
  if (name != "linear" && name != "llama3" && name != "yarn")
    return Error(Code::kUnsupported, "rope_type \"%s\"; supported: default, linear, llama3, yarn",
                 name.c_str());
  SYSONE_ASSIGN_OR_RETURN(out.factor, Number(rope, "factor", 0));
  if (!(out.factor > 0)) return Error(Code::kCorrupt, "rope \"factor\" is missing or not positive");
  // A length beside the settings goes before one in them; without either it is max_position_embeddings.
  if (out.original_max_positions == 0) {
    SYSONE_ASSIGN_OR_RETURN(out.original_max_positions,
                            Number(rope, "original_max_position_embeddings", config.max_positions));
  }
  if (out.original_max_positions <= 0)
    return Error(Code::kCorrupt, "\"original_max_position_embeddings\" is %g",
                 out.original_max_positions);
  if (name == "linear") {
    out.scaling = RopeScaling::kLinear;
    return Status();
  }
  if (name == "yarn") return ReadYarn(rope, config);
  out.scaling = RopeScaling::kLlama3;
  SYSONE_ASSIGN_OR_RETURN(out.low_freq_factor, Number(rope, "low_freq_factor", 0));
  SYSONE_ASSIGN_OR_RETURN(out.high_freq_factor, Number(rope, "high_freq_factor", 0));
  if (!(out.low_freq_factor > 0 && out.high_freq_factor > out.low_freq_factor))
    return Error(Code::kCorrupt,
                 "llama3 rope needs 0 < low_freq_factor (%g) < high_freq_factor (%g)",
                 out.low_freq_factor, out.high_freq_factor);
  return Status();
}

Status ReadRope(const Json& json, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  SYSONE_ASSIGN_OR_RETURN(rope.theta, Number(json, "rope_theta", 10000));
  SYSONE_ASSIGN_OR_RETURN(const double rotated, Number(json, "partial_rotary_factor", 1));
  if (rotated != 1)
    return Error(Code::kUnsupported, "\"partial_rotary_factor\" is %g; supported: 1", rotated);
  SYSONE_ASSIGN_OR_RETURN(rope.original_max_positions,
                          Number(json, "original_max_position_embeddings", 0));
  const Json* settings = Present(json, "rope_parameters");
  if (settings == nullptr) settings = Present(json, "rope_scaling");
  if (settings != nullptr) SYSONE_RETURN_IF_ERROR(ReadScaling(*settings, config));
  if (rope.scaling != RopeScaling::kLlama3 && rope.scaling != RopeScaling::kYarn)
    rope.original_max_positions = 0;
  return Status();
}

Status ReadSizes(const Json& json, const Family& family, ModelConfig& config) {
  SYSONE_ASSIGN_OR_RETURN(config.hidden, Size(json, "hidden_size"));
  SYSONE_ASSIGN_OR_RETURN(config.heads, Size(json, "num_attention_heads"));
  SYSONE_ASSIGN_OR_RETURN(config.kv_heads, Size(json, "num_key_value_heads", config.heads));
  const int32_t usual = family.head_dim > 0 ? family.head_dim : config.hidden / config.heads;
  SYSONE_ASSIGN_OR_RETURN(config.head_dim, Size(json, "head_dim", usual));
  SYSONE_ASSIGN_OR_RETURN(config.intermediate, Size(json, "intermediate_size"));
  SYSONE_ASSIGN_OR_RETURN(config.vocab, Size(json, "vocab_size"));
  SYSONE_ASSIGN_OR_RETURN(config.max_positions, Size(json, "max_position_embeddings"));
  SYSONE_ASSIGN_OR_RETURN(const int32_t layers, Size(json, "num_hidden_layers"));
  if (layers > 1 << 16) return Error(Code::kCorrupt, "\"num_hidden_layers\" is %d", layers);
  config.layers.resize(static_cast<size_t>(layers));
  SYSONE_ASSIGN_OR_RETURN(const double eps, Number(json, "rms_norm_eps", 1e-6));
  config.norm_eps = static_cast<float>(eps);
  SYSONE_ASSIGN_OR_RETURN(config.tied_head, Flag(json, "tie_word_embeddings"));
  return Status();
}

}  // namespace

Result<ModelConfig> ReadHfConfig(const std::string& text) {
  const auto json = Json::Parse(text);
  if (!json.ok()) return Status(Code::kCorrupt, json.status().message());
  SYSONE_ASSIGN_OR_RETURN(const Family family, FindFamily(*json));
  SYSONE_RETURN_IF_ERROR(RefuseWhatWeLack(*json));
  ModelConfig config;
  config.family = family.model_type;
  config.qkv_bias = family.qkv_bias;
  config.qk_norm = family.qk_norm;
  SYSONE_RETURN_IF_ERROR(ReadSizes(*json, family, config));
  SYSONE_RETURN_IF_ERROR(ReadRope(*json, config));
  config.names = HfTensorNames(config);
  SYSONE_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

}  // namespace sysone
