// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/gguf.h"
#include "model/model_config.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

// A complete one-layer model; `names` leaves tensors out, `extra` puts keys or tensors in.
struct Recipe {
  std::string architecture = "llama";
  bool head = false, qkv_bias = false, qk_norm = false;
  std::string leave_out = {};
  uint32_t layers = 1;
  std::function<void(GgufWriter&)> extra = [](GgufWriter&) {};
};

std::string Build(const Recipe& recipe) {
  constexpr uint64_t kHidden = 8, kInter = 12, kVocab = 10, kHeadDim = 4, kHeads = 2, kKvHeads = 1;
  const std::string& arch = recipe.architecture;
  GgufWriter writer;
  writer.String("general.architecture", arch)
      .U32(arch + ".block_count", recipe.layers)
      .U32(arch + ".embedding_length", kHidden)
      .U32(arch + ".feed_forward_length", kInter)
      .U32(arch + ".attention.head_count", kHeads)
      .U32(arch + ".attention.head_count_kv", kKvHeads)
      .U32(arch + ".context_length", 64)
      .F32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  recipe.extra(writer);
  const auto tensor = [&](const std::string& name, std::vector<uint64_t> shape) {
    if (name == recipe.leave_out) return;
    uint64_t count = 1;
    for (const uint64_t size : shape) count *= size;
    writer.Tensor(name, std::move(shape), 0, std::string(count * 4, '\0'));
  };
  tensor("token_embd.weight", {kHidden, kVocab});
  tensor("output_norm.weight", {kHidden});
  if (recipe.head) tensor("output.weight", {kHidden, kVocab});
  const std::string layer = "blk.0.";
  tensor(layer + "attn_norm.weight", {kHidden});
  tensor(layer + "attn_q.weight", {kHidden, kHeads * kHeadDim});
  tensor(layer + "attn_k.weight", {kHidden, kKvHeads * kHeadDim});
  tensor(layer + "attn_v.weight", {kHidden, kKvHeads * kHeadDim});
  tensor(layer + "attn_output.weight", {kHeads * kHeadDim, kHidden});
  if (recipe.qkv_bias) {
    tensor(layer + "attn_q.bias", {kHeads * kHeadDim});
    tensor(layer + "attn_k.bias", {kKvHeads * kHeadDim});
    tensor(layer + "attn_v.bias", {kKvHeads * kHeadDim});
  }
  if (recipe.qk_norm) {
    tensor(layer + "attn_q_norm.weight", {kHeadDim});
    tensor(layer + "attn_k_norm.weight", {kHeadDim});
  }
  tensor(layer + "ffn_norm.weight", {kHidden});
  tensor(layer + "ffn_gate.weight", {kHidden, kInter});
  tensor(layer + "ffn_up.weight", {kHidden, kInter});
  tensor(layer + "ffn_down.weight", {kInter, kHidden});
  return writer.Bytes();
}

class GgufConfig : public ::testing::Test {
 protected:
  // The config, its tensors checked as well.
  Result<ModelConfig> Read(const Recipe& recipe) {
    const auto file = GgufFile::Open(folder_.Write("m.gguf", Build(recipe)));
    if (!file.ok()) return file.status();
    auto config = ReadGgufConfig(**file);
    if (!config.ok()) return config;
    SYSONE_RETURN_IF_ERROR(ValidateTensors(*config, TensorIndex((*file)->tensors(), {*file})));
    return config;
  }
  void ExpectError(const Recipe& recipe, Code code, const std::string& text) {
    const auto config = Read(recipe);
    ASSERT_FALSE(config.ok()) << "should say: " << text;
    EXPECT_EQ(config.status().code(), code) << config.status().message();
    EXPECT_NE(config.status().message().find(text), std::string::npos)
        << config.status().message() << "\nshould say: " << text;
  }
  TempFolder folder_;
};

TEST_F(GgufConfig, ReadsATiedLlama) {
  const auto config = Read({});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->hidden, 8);
  EXPECT_EQ(config->heads, 2);
  EXPECT_EQ(config->kv_heads, 1);
  EXPECT_EQ(config->head_dim, 4);
  EXPECT_EQ(config->intermediate, 12);
  EXPECT_EQ(config->vocab, 10);
  EXPECT_EQ(config->max_positions, 64);
  EXPECT_EQ(config->norm_eps, 1e-5f);
  EXPECT_TRUE(config->tied_head);
  EXPECT_TRUE(config->names.head.empty());
  EXPECT_TRUE(config->qk_rows_interleaved);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_EQ(config->layers.size(), 1u);
  EXPECT_EQ(config->rope.theta, 10000);
  EXPECT_EQ(config->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(LayerTensorName(config->names.q, 12), "blk.12.attn_q.weight");
}

TEST_F(GgufConfig, ReadsTheOtherFamiliesAndAnUntiedHead) {
  Recipe qwen2{.architecture = "qwen2", .head = true, .qkv_bias = true};
  const auto two = Read(qwen2);
  ASSERT_TRUE(two.ok()) << two.status().message();
  EXPECT_TRUE(two->qkv_bias);
  EXPECT_FALSE(two->tied_head);
  EXPECT_EQ(two->names.head, "output.weight");
  EXPECT_FALSE(two->qk_rows_interleaved);
  Recipe qwen3{.architecture = "qwen3", .qk_norm = true};
  const auto three = Read(qwen3);
  ASSERT_TRUE(three.ok()) << three.status().message();
  EXPECT_TRUE(three->qk_norm);
  EXPECT_EQ(three->names.k_norm, "blk.{}.attn_k_norm.weight");
}

TEST_F(GgufConfig, ReadsRopeScaling) {
  Recipe recipe;
  recipe.extra = [](GgufWriter& writer) {
    writer.F32("llama.rope.freq_base", 5e5f)
        .String("llama.rope.scaling.type", "yarn")
        .F32("llama.rope.scaling.factor", 4)
        .U32("llama.rope.scaling.original_context_length", 32)
        .F32("llama.rope.scaling.yarn_beta_fast", 24);
  };
  const auto yarn = Read(recipe);
  ASSERT_TRUE(yarn.ok()) << yarn.status().message();
  EXPECT_EQ(yarn->rope.theta, 5e5);
  EXPECT_EQ(yarn->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn->rope.factor, 4);
  EXPECT_EQ(yarn->rope.original_max_positions, 32);
  EXPECT_EQ(yarn->max_positions, 128);
  EXPECT_EQ(yarn->rope.beta_fast, 24);
  EXPECT_EQ(yarn->rope.beta_slow, 1);
  EXPECT_EQ(yarn->rope.attention_factor, 0);

  recipe.extra = [](GgufWriter& writer) {
    writer.String("llama.rope.scaling.type", "linear").F32("llama.rope.scaling.factor", 2);
  };
  EXPECT_EQ(Read(recipe)->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(Read(recipe)->rope.factor, 2);

  recipe.extra = [](GgufWriter& writer) { writer.F32("llama.rope.scale_linear", 8); };
  EXPECT_EQ(Read(recipe)->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(Read(recipe)->rope.factor, 8);

  recipe.extra = [](GgufWriter& writer) {
    writer.String("llama.rope.scaling.type", "none").F32("llama.rope.scaling.factor", 4);
  };
  EXPECT_EQ(Read(recipe)->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(Read(recipe)->rope.factor, 1);

  recipe.extra = [](GgufWriter& writer) { writer.F32("llama.rope.scaling.factor", -1); };
  ExpectError(recipe, Code::kCorrupt, "rope.scaling.factor");
  recipe.extra = [](GgufWriter& writer) { writer.String("llama.rope.scaling.type", "longrope"); };
  ExpectError(recipe, Code::kUnsupported, "longrope");
}

TEST_F(GgufConfig, ReadsFrequencyDivisors) {
  Recipe recipe;
  const float divisors[] = {1, 8};
  const std::string_view bytes(reinterpret_cast<const char*>(divisors), 8);
  recipe.extra = [&](GgufWriter& writer) { writer.Tensor("rope_freqs.weight", {2}, 0, bytes); };
  const auto config = Read(recipe);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope.frequency_divisors, (std::vector<float>{1, 8}));
  recipe.extra = [&](GgufWriter& writer) { writer.Tensor("rope_freqs.weight", {1, 2}, 0, bytes); };
  ExpectError(recipe, Code::kCorrupt, "rope_freqs.weight");
}

TEST_F(GgufConfig, RefusesWhatItCannotServe) {
  ExpectError({.architecture = "mamba"}, Code::kUnsupported,
              "architecture \"mamba\"; supported: llama, qwen2, qwen3");
  Recipe recipe;
  const auto with = [&](const std::string& key, uint32_t value) {
    recipe.extra = [=](GgufWriter& writer) { writer.U32(key, value); };
    return recipe;
  };
  ExpectError(with("llama.expert_count", 8), Code::kUnsupported, "expert_count");
  ExpectError(with("llama.attention.sliding_window", 16), Code::kUnsupported, "sliding_window");
  EXPECT_TRUE(Read(with("llama.attention.sliding_window", 64)).ok());  // as wide as the context
  ExpectError(with("llama.rope.dimension_count", 2), Code::kUnsupported, "partial rotation");
  ExpectError(with("llama.attention.value_length", 8), Code::kUnsupported, "value_length");
  ExpectError(with("split.count", 3), Code::kUnsupported, "one of 3 parts");
  recipe.extra = [](GgufWriter& writer) {
    writer.Tensor("blk.0.attn_output.bias", {8}, 0, std::string(32, '\0'));
  };
  ExpectError(recipe, Code::kUnsupported, "\"blk.0.attn_output.bias\" is no part of a llama model");
}

TEST_F(GgufConfig, NamesWhatIsMissingOrMisshapen) {
  ExpectError({.leave_out = "blk.0.ffn_up.weight"}, Code::kCorrupt,
              "\"blk.0.ffn_up.weight\" is missing");
  ExpectError({.leave_out = "token_embd.weight"}, Code::kCorrupt, "token_embd.weight");
  ExpectError({.architecture = "qwen2"}, Code::kCorrupt, "\"blk.0.attn_q.bias\" is missing");
  ExpectError({.architecture = "qwen3"}, Code::kCorrupt, "\"blk.0.attn_q_norm.weight\" is missing");
  ExpectError({.layers = 2}, Code::kCorrupt, "\"blk.1.attn_norm.weight\" is missing");
  ExpectError({.layers = 1000000000}, Code::kCorrupt, "block_count");
  Recipe recipe;
  recipe.extra = [](GgufWriter& writer) { writer.U32("llama.attention.key_length", 8); };
  ExpectError(recipe, Code::kCorrupt,
              "\"blk.0.attn_q.weight\" has shape [8, 8], the config asks for [16, 8]");
  recipe.extra = [](GgufWriter& writer) { writer.U32("llama.attention.key_length", 3); };
  ExpectError(recipe, Code::kCorrupt, "odd");
}

}  // namespace
}  // namespace sysone
