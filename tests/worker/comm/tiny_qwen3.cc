// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/comm/tiny_qwen3.h"

#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/log.h"
#include "tests/model/safetensors_writer.h"

namespace sysone {
namespace {

constexpr int64_t kVocabulary = 768, kHidden = 64, kWide = 192, kHeadDim = 32, kLayers = 3;

class Checkpoint {
 public:
  // Values of around 1 / sqrt(cols), so that rows keep their size through a product.
  void Matrix(const std::string& name, int64_t rows, int64_t cols) {
    Add(name, Format("[%lld,%lld]", static_cast<long long>(rows), static_cast<long long>(cols)),
        rows * cols, 0, 1 / std::sqrt(static_cast<float>(cols)));
  }
  void Norm(const std::string& name, int64_t size) {
    Add(name, Format("[%lld]", static_cast<long long>(size)), size, 1, 0.1f);
  }
  std::string Bytes() const { return SafetensorsBytes("{" + header_ + "}", data_); }

 private:
  void Add(const std::string& name, const std::string& shape, int64_t count, float middle,
           float spread) {
    const size_t begin = data_.size();
    for (int64_t i = 0; i < count; ++i) {
      // No library's distribution: those differ between libraries. Uniform, of standard deviation `spread`.
      const float unit = static_cast<float>(random_()) * 0x1p-31f - 1;
      const float value = middle + spread * std::sqrt(3.0f) * unit;
      data_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header_ +=
        (header_.empty() ? "" : ",") + SafetensorsEntry(name, "F32", shape, begin, data_.size());
  }

  std::mt19937 random_{20261130};
  std::string header_, data_;
};

}  // namespace

void WriteTinyQwen3(const std::filesystem::path& folder, int64_t heads, int64_t kv_heads) {
  Checkpoint checkpoint;
  checkpoint.Matrix("model.embed_tokens.weight", kVocabulary, kHidden);
  checkpoint.Norm("model.norm.weight", kHidden);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    checkpoint.Norm(at + "input_layernorm.weight", kHidden);
    checkpoint.Matrix(at + "self_attn.q_proj.weight", heads * kHeadDim, kHidden);
    checkpoint.Matrix(at + "self_attn.k_proj.weight", kv_heads * kHeadDim, kHidden);
    checkpoint.Matrix(at + "self_attn.v_proj.weight", kv_heads * kHeadDim, kHidden);
    checkpoint.Matrix(at + "self_attn.o_proj.weight", kHidden, heads * kHeadDim);
    checkpoint.Norm(at + "self_attn.q_norm.weight", kHeadDim);
    checkpoint.Norm(at + "self_attn.k_norm.weight", kHeadDim);
    checkpoint.Norm(at + "post_attention_layernorm.weight", kHidden);
    checkpoint.Matrix(at + "mlp.gate_proj.weight", kWide, kHidden);
    checkpoint.Matrix(at + "mlp.up_proj.weight", kWide, kHidden);
    checkpoint.Matrix(at + "mlp.down_proj.weight", kHidden, kWide);
  }
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.safetensors", std::ios::binary) << checkpoint.Bytes();
  std::ofstream(folder / "config.json") << Format(
      R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","attention_bias":false,"head_dim":%lld,"hidden_act":"silu",
"hidden_size":%lld,"intermediate_size":%lld,"max_position_embeddings":1024,"num_attention_heads":%lld,"num_hidden_layers":%lld,
"num_key_value_heads":%lld,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"tie_word_embeddings":true,"vocab_size":%lld})",
      static_cast<long long>(kHeadDim), static_cast<long long>(kHidden),
      static_cast<long long>(kWide), static_cast<long long>(heads), static_cast<long long>(kLayers),
      static_cast<long long>(kv_heads), static_cast<long long>(kVocabulary));
}

}  // namespace sysone
