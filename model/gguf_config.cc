// A ModelConfig from GGUF metadata. Keys begin with the architecture's name: "llama.block_count".
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "model/gguf.h"
#include "model/model_config.h"

namespace sysone {
namespace {

class Reader {
 public:
  Reader(const GgufFile& file, const std::string& architecture)
      : file_(file), prefix_(architecture + ".") {}

  Result<ModelConfig> Read();

 private:
  Result<int32_t> Size(const char* key) const;
  // A size that the file may give once or once a layer; layers that differ are refused.
  Result<int32_t> SizeOfAllLayers(const char* key) const;
  std::string Key(const char* key) const { return prefix_ + key; }
  const TensorInfo* Tensor(std::string_view name) const {
    const auto& tensors = file_.tensors();
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorInfo& tensor) { return tensor.name == name; });
    return found == tensors.end() ? nullptr : &*found;
  }
  Status RefuseWhatWeLack(const ModelConfig& config) const;
  Status ReadSizes(ModelConfig& config) const;
  Status ReadRope(ModelConfig& config) const;

  const GgufFile& file_;
  std::string prefix_;
};

Result<int32_t> Narrow(const std::string& key, std::optional<int64_t> value) {
  if (!value) return Error(Code::kCorrupt, "metadata key \"%s\" is missing", key.c_str());
  if (*value <= 0 || *value > std::numeric_limits<int32_t>::max())
    return Error(Code::kCorrupt, "metadata key \"%s\" is %lld", key.c_str(),
                 static_cast<long long>(*value));
  return static_cast<int32_t>(*value);
}

Result<int32_t> Reader::Size(const char* key) const {
  return Narrow(Key(key), file_.Int(Key(key)));
}

Result<int32_t> Reader::SizeOfAllLayers(const char* key) const {
  const auto each = file_.Ints(Key(key));
  if (!each) return Size(key);
  if (each->empty()) return Error(Code::kCorrupt, "metadata key \"%s\" is empty", Key(key).c_str());
  for (const int64_t value : *each)
    if (value != each->front())
      return Error(Code::kUnsupported, "\"%s\" differs from layer to layer", Key(key).c_str());
  return Narrow(Key(key), each->front());
}

Status Reader::ReadSizes(ModelConfig& config) const {
  SYSONE_ASSIGN_OR_RETURN(config.hidden, Size("embedding_length"));
  SYSONE_ASSIGN_OR_RETURN(config.intermediate, SizeOfAllLayers("feed_forward_length"));
  SYSONE_ASSIGN_OR_RETURN(config.heads, SizeOfAllLayers("attention.head_count"));
  config.kv_heads = config.heads;
  if (const std::string key = Key("attention.head_count_kv"); file_.Int(key) || file_.Ints(key)) {
    SYSONE_ASSIGN_OR_RETURN(config.kv_heads, SizeOfAllLayers("attention.head_count_kv"));
  }
  config.head_dim = config.hidden / config.heads;
  if (file_.Int(Key("attention.key_length"))) {
    SYSONE_ASSIGN_OR_RETURN(config.head_dim, Size("attention.key_length"));
  }
  SYSONE_ASSIGN_OR_RETURN(config.max_positions, Size("context_length"));
  SYSONE_ASSIGN_OR_RETURN(const int32_t layers, Size("block_count"));
  // The directory has several tensors a layer, so a larger count is a lie that must not size an
  // allocation.
  if (static_cast<size_t>(layers) > file_.tensors().size())
    return Error(Code::kCorrupt, "\"%s\" is %d, but there are only %zu tensors",
                 Key("block_count").c_str(), layers, file_.tensors().size());
  config.layers.resize(static_cast<size_t>(layers));
  const auto eps = file_.Float(Key("attention.layer_norm_rms_epsilon"));
  if (!eps)
    return Error(Code::kCorrupt, "metadata key \"%s\" is missing",
                 Key("attention.layer_norm_rms_epsilon").c_str());
  config.norm_eps = static_cast<float>(*eps);
  const TensorInfo* const embedding = Tensor("token_embd.weight");
  if (embedding == nullptr) return Error(Code::kCorrupt, "tensor \"token_embd.weight\" is missing");
  SYSONE_ASSIGN_OR_RETURN(config.vocab, Narrow("rows of token_embd.weight", embedding->rows()));
  return Status();
}

Status Reader::RefuseWhatWeLack(const ModelConfig& config) const {
  if (const auto experts = file_.Int(Key("expert_count")); experts.value_or(0) > 0)
    return Error(Code::kUnsupported, "\"%s\" is %lld: mixtures of experts are not supported",
                 Key("expert_count").c_str(), static_cast<long long>(*experts));
  const auto window = file_.Int(Key("attention.sliding_window"));
  if (window.value_or(0) > 0 && *window < config.max_positions)
    return Error(Code::kUnsupported, "\"%s\" is %lld: sliding windows are not supported",
                 Key("attention.sliding_window").c_str(), static_cast<long long>(*window));
  if (const auto values = file_.Int(Key("attention.value_length"));
      values && *values != config.head_dim)
    return Error(Code::kUnsupported, "\"%s\" is %lld, keys have %d",
                 Key("attention.value_length").c_str(), static_cast<long long>(*values),
                 config.head_dim);
  if (const auto rotated = file_.Int(Key("rope.dimension_count"));
      rotated && *rotated != config.head_dim)
    return Error(Code::kUnsupported, "\"%s\" is %lld of %d: partial rotation is not supported",
                 Key("rope.dimension_count").c_str(), static_cast<long long>(*rotated),
                 config.head_dim);
  return Status();
}

Status Reader::ReadRope(ModelConfig& config) const {
  RopeConfig& rope = config.rope;
  rope.theta = file_.Float(Key("rope.freq_base")).value_or(10000);
  // A file without a type means linear, if it scales at all; the oldest ones have rope.scale_linear.
  const std::string type(file_.String(Key("rope.scaling.type")).value_or("linear"));
  const double old_factor = file_.Float(Key("rope.scale_linear")).value_or(1);
  rope.factor = file_.Float(Key("rope.scaling.factor")).value_or(old_factor);
  if (rope.factor == 0) rope.factor = 1;
  if (!(rope.factor > 0) || !std::isfinite(rope.factor))
    return Error(Code::kCorrupt, "\"%s\" is %g", Key("rope.scaling.factor").c_str(), rope.factor);
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.original_max_positions =
        file_.Float(Key("rope.scaling.original_context_length")).value_or(config.max_positions);
    rope.beta_fast = file_.Float(Key("rope.scaling.yarn_beta_fast")).value_or(32);
    rope.beta_slow = file_.Float(Key("rope.scaling.yarn_beta_slow")).value_or(1);
    ExtendByYarn(config);
    if (const double own = file_.Float(Key("rope.scaling.attn_factor")).value_or(1); own != 1)
      rope.attention_factor = own * (0.1 * std::log(rope.factor) + 1);
  } else if (type == "linear") {
    if (rope.factor != 1) rope.scaling = RopeScaling::kLinear;
  } else if (type == "none") {
    rope.factor = 1;
  } else {
    return Error(Code::kUnsupported, "\"%s\" is \"%s\"; supported: none, linear, yarn",
                 Key("rope.scaling.type").c_str(), type.c_str());
  }

  if (const TensorInfo* const divisors = Tensor("rope_freqs.weight")) {
    if (divisors->shape != std::vector<int64_t>{config.head_dim / 2})
      return Error(Code::kCorrupt,
                   "tensor \"rope_freqs.weight\" has shape %s, the config asks for [%d]",
                   ShapeText(divisors->shape).c_str(), config.head_dim / 2);
    rope.frequency_divisors.resize(static_cast<size_t>(config.head_dim / 2));
    ReadRows(*divisors, 0, 1, rope.frequency_divisors.data());
  }
  return Status();
}

Result<ModelConfig> Reader::Read() {
  ModelConfig config;
  config.family = prefix_.substr(0, prefix_.size() - 1);
  SYSONE_RETURN_IF_ERROR(ReadSizes(config));
  SYSONE_RETURN_IF_ERROR(RefuseWhatWeLack(config));
  SYSONE_RETURN_IF_ERROR(ReadRope(config));
  config.tied_head = Tensor("output.weight") == nullptr;
  config.qkv_bias = config.family == "qwen2" || Tensor("blk.0.attn_q.bias") != nullptr;
  config.qk_norm = config.family == "qwen3";
  config.qk_rows_interleaved = config.family == "llama";
  config.names = GgufTensorNames(config);
  SYSONE_RETURN_IF_ERROR(CheckConfig(config));
  return config;
}

}  // namespace

Result<ModelConfig> ReadGgufConfig(const GgufFile& file) {
  const auto architecture = file.String("general.architecture");
  if (!architecture)
    return Error(Code::kCorrupt, "%s: metadata key \"general.architecture\" is missing",
                 file.path().c_str());
  if (*architecture != "llama" && *architecture != "qwen2" && *architecture != "qwen3")
    return Error(Code::kUnsupported, "%s: architecture \"%s\"; supported: llama, qwen2, qwen3",
                 file.path().c_str(), std::string(*architecture).c_str());
  if (const auto parts = file.Int("split.count"); parts.value_or(1) > 1)
    return Error(Code::kUnsupported, "%s: one of %lld parts; merge them into one file first",
                 file.path().c_str(), static_cast<long long>(*parts));
  Reader reader(file, std::string(*architecture));
  auto config = reader.Read();
  if (!config.ok()) return config.status().WithContext(file.path());
  return config;
}

}  // namespace sysone
