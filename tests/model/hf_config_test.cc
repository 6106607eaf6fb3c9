// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "model/mapped_file.h"
#include "model/model_config.h"
#include "model/safetensors.h"

namespace sysone {
namespace {

std::string GoldenFolder(const std::string& family) {
  return std::string(SYSONE_SOURCE_DIR) + "/tests/golden/" + family;
}

ModelConfig Golden(const std::string& family) {
  const auto text = ReadWholeFile(GoldenFolder(family) + "/config.json");
  SYSONE_CHECK(text.ok(), "%s", text.status().message().c_str());
  auto config = ReadHfConfig(*text);
  SYSONE_CHECK(config.ok(), "%s: %s", family.c_str(), config.status().message().c_str());
  return *config;
}

void ExpectError(const std::string& text, Code code, const std::string& message) {
  const auto config = ReadHfConfig(text);
  ASSERT_FALSE(config.ok()) << "should say: " << message;
  EXPECT_EQ(config.status().code(), code) << config.status().message();
  EXPECT_NE(config.status().message().find(message), std::string::npos)
      << config.status().message() << "\nshould say: " << message;
}

// A small config of the published style, with `fields` (", …" JSON members) put at its end; later duplicates win.
std::string Config(const std::string& fields = "", const std::string& type = "llama") {
  return R"({"model_type": ")" + type + R"(", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
    "hidden_act": "silu", "tie_word_embeddings": true)" +
         fields + "}";
}

TEST(HfConfig, TheGoldenCheckpointsHaveWhatTheirConfigsPromise) {
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"}) {
    const auto files = OpenSafetensorsFolder(GoldenFolder(family));
    ASSERT_TRUE(files.ok()) << files.status().message();
    const TensorIndex tensors((*files)[0].tensors, {(*files)[0].file});
    ModelConfig config = Golden(family);
    const Status valid = ValidateTensors(config, tensors);
    EXPECT_TRUE(valid.ok()) << family << ": " << valid.message();
    // And a config that differs from the file is found out.
    config.intermediate += 1;
    EXPECT_EQ(ValidateTensors(config, tensors).code(), Code::kCorrupt);
    EXPECT_NE(ValidateTensors(config, tensors).message().find("mlp.gate_proj.weight"),
              std::string::npos);
  }
}

TEST(HfConfig, ReadsTheGoldenLlama) {
  const ModelConfig config = Golden("llama");
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.hidden, 144);
  EXPECT_EQ(config.heads, 9);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.intermediate, 384);
  EXPECT_EQ(config.vocab, 768);
  EXPECT_EQ(config.max_positions, 1024);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.layers.size(), 2u);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.names.head, "");
  EXPECT_FALSE(config.qkv_bias || config.qk_norm || config.qk_rows_interleaved);
  EXPECT_EQ(config.rope.theta, 1e5);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
}

TEST(HfConfig, ReadsTheGoldenLlama3) {
  const ModelConfig config = Golden("llama3");
  EXPECT_FALSE(config.tied_head);
  EXPECT_EQ(config.names.head, "lm_head.weight");
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.rope.low_freq_factor, 1);
  EXPECT_EQ(config.rope.high_freq_factor, 4);
  EXPECT_EQ(config.rope.original_max_positions, 128);
}

TEST(HfConfig, ReadsTheGoldenQwens) {
  const ModelConfig two = Golden("qwen2");
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_EQ(two.head_dim, 16);
  EXPECT_EQ(two.rope.theta, 1e6);
  EXPECT_EQ(two.names.v_bias, "model.layers.{}.self_attn.v_proj.bias");
  const ModelConfig three = Golden("qwen3");
  EXPECT_TRUE(three.qk_norm);
  EXPECT_FALSE(three.qkv_bias);
  EXPECT_EQ(three.head_dim, 32);  // not hidden / heads
  EXPECT_EQ(three.hidden, 64);
  EXPECT_EQ(three.norm_eps, 1e-6f);
}

TEST(HfConfig, ReadsPublishedConfigsWithTheOldKeys) {
  // The fields of Qwen3-0.6B as published.
  const auto qwen3 =
      ReadHfConfig(R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
    "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936})");
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().message();
  EXPECT_EQ(qwen3->head_dim, 128);
  EXPECT_EQ(qwen3->rope.theta, 1e6);
  EXPECT_EQ(qwen3->vocab, 151936);
  EXPECT_EQ(qwen3->layers.size(), 28u);

  // Qwen2.5 states a window that it does not use; YaRN as its model card tells to add it.
  const auto qwen2 = ReadHfConfig(R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
    "hidden_act": "silu", "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 32768,
    "max_window_layers": 28, "sliding_window": 32768, "use_sliding_window": false,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "vocab_size": 151936,
    "tie_word_embeddings": true,
    "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}})");
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().message();
  EXPECT_EQ(qwen2->head_dim, 128);
  EXPECT_EQ(qwen2->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(qwen2->rope.original_max_positions, 32768);
  EXPECT_EQ(qwen2->max_positions, 131072);
}

TEST(HfConfig, ReadsEveryRopeVariantUnderOldAndNewKeys) {
  const auto rope = [](const std::string& fields) {
    const auto config = ReadHfConfig(Config(fields));
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? config->rope : RopeConfig();
  };
  EXPECT_EQ(rope(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0})").theta, 7);
  EXPECT_EQ(rope(R"(, "rope_scaling": {"type": "linear", "factor": 2.0})").theta, 100000);
  for (const char* keys : {R"(, "rope_scaling": {"type": "linear", "factor": 2.0})",
                           R"(, "rope_scaling": {"rope_type": "linear", "factor": 2})",
                           R"(, "rope_parameters": {"rope_type": "linear", "factor": 2.0})"}) {
    EXPECT_EQ(rope(keys).scaling, RopeScaling::kLinear) << keys;
    EXPECT_EQ(rope(keys).factor, 2) << keys;
  }
  const RopeConfig llama3 = rope(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  EXPECT_EQ(llama3.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(llama3.original_max_positions, 8192);
  EXPECT_EQ(rope(R"(, "original_max_position_embeddings": 64,
    "rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 128})")
                .original_max_positions,
            64);
  const RopeConfig yarn = rope(R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4.0,
    "beta_fast": 64, "beta_slow": 2, "attention_factor": 1.25})");
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.original_max_positions, 512);  // not stated: max_position_embeddings
  EXPECT_EQ(yarn.beta_fast, 64);
  EXPECT_EQ(yarn.beta_slow, 2);
  EXPECT_EQ(yarn.attention_factor, 1.25);
  const RopeConfig mscale = rope(R"(, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 0.5})");
  EXPECT_DOUBLE_EQ(mscale.attention_factor,
                   (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1));
}

TEST(HfConfig, RefusesRopeThatItCannotServe) {
  ExpectError(Config(R"(, "rope_scaling": {"type": "dynamic", "factor": 2.0})"), Code::kUnsupported,
              "rope_type \"dynamic\"");
  ExpectError(Config(R"(, "rope_scaling": {"type": "longrope", "factor": 2.0})"),
              Code::kUnsupported, "default, linear, llama3, yarn");
  ExpectError(Config(R"(, "rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": false})"),
              Code::kUnsupported, "truncate");
  ExpectError(Config(R"(, "partial_rotary_factor": 0.5)"), Code::kUnsupported, "partial_rotary");
  ExpectError(Config(R"(, "rope_scaling": {"type": "linear"})"), Code::kCorrupt, "factor");
  ExpectError(Config(R"(, "rope_scaling": {"factor": 2.0})"), Code::kCorrupt, "no rope_type");
  ExpectError(Config(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0})"), Code::kCorrupt,
              "low_freq_factor");
  ExpectError(Config(R"(, "rope_scaling": 3)"), Code::kCorrupt, "rope settings");
  ExpectError(Config(R"(, "rope_parameters": {"full_attention": {"rope_theta": 5.0}})"),
              Code::kUnsupported, "\"full_attention\"");
  ExpectError(Config(R"(, "rope_theta": 0)"), Code::kCorrupt, "rotary base");
}

TEST(HfConfig, TakesTheFamiliesDefaults) {
  const auto many_heads = ReadHfConfig(R"({"model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 10,
    "max_position_embeddings": 32})");
  ASSERT_TRUE(many_heads.ok()) << many_heads.status().message();
  EXPECT_EQ(many_heads->kv_heads, 4);
  EXPECT_EQ(many_heads->head_dim, 16);
  EXPECT_EQ(many_heads->norm_eps, 1e-6f);
  EXPECT_EQ(many_heads->rope.theta, 10000);
  EXPECT_FALSE(many_heads->tied_head);
  EXPECT_EQ(ReadHfConfig(Config("", "qwen3"))->head_dim, 128);
}

TEST(HfConfig, RefusesOtherModelsAndSaysWhatIsSupported) {
  ExpectError(Config("", "gemma3_text"), Code::kUnsupported,
              "model_type \"gemma3_text\"; supported: llama, qwen2, qwen3");
  ExpectError("{}", Code::kCorrupt, "model_type");
  ExpectError("[]", Code::kCorrupt, "model_type");
  ExpectError("{", Code::kCorrupt, "");
  ExpectError(Config(R"(, "architectures": ["LlamaForSequenceClassification"])"),
              Code::kUnsupported, "LlamaForCausalLM");
}

TEST(HfConfig, RefusesPartsThatItCannotServe) {
  ExpectError(Config(R"(, "attention_bias": true)"), Code::kUnsupported, "attention_bias");
  ExpectError(Config(R"(, "mlp_bias": true)"), Code::kUnsupported, "mlp_bias");
  ExpectError(Config(R"(, "use_sliding_window": true)", "qwen2"), Code::kUnsupported,
              "use_sliding_window");
  ExpectError(Config(R"(, "layer_types": ["full_attention", "sliding_attention"])", "qwen3"),
              Code::kUnsupported, "sliding_attention");
  ExpectError(Config(R"(, "hidden_act": "gelu")"), Code::kUnsupported, "hidden_act");
  ExpectError(Config(R"(, "quantization_config": {"quant_method": "gptq"})"), Code::kUnsupported,
              "quantization_config");
}

TEST(HfConfig, NamesTheFieldThatIsMissingOrWrong) {
  ExpectError(Config(R"(, "hidden_size": null)"), Code::kCorrupt, "\"hidden_size\" is missing");
  ExpectError(Config(R"(, "hidden_size": "64")"), Code::kCorrupt, "\"hidden_size\" is \"64\"");
  ExpectError(Config(R"(, "vocab_size": -1)"), Code::kCorrupt, "\"vocab_size\" is -1");
  ExpectError(Config(R"(, "num_hidden_layers": 2000000000)"), Code::kCorrupt, "num_hidden_layers");
  ExpectError(Config(R"(, "num_attention_heads": 3)"), Code::kCorrupt, "multiple");
  ExpectError(Config(R"(, "rms_norm_eps": 1e400)"), Code::kCorrupt, "rms_norm_eps");
  ExpectError(Config(R"(, "tie_word_embeddings": 1)"), Code::kCorrupt, "tie_word_embeddings");
  ExpectError(Config(R"(, "head_dim": 15)"), Code::kCorrupt, "odd");
}

TEST(HfConfig, AnUntiedHeadMustBeThereAndATiedOneMay) {
  const auto files = OpenSafetensorsFolder(GoldenFolder("llama3"));
  ASSERT_TRUE(files.ok());
  const TensorIndex untied((*files)[0].tensors, {(*files)[0].file});
  ModelConfig config = Golden("llama3");
  config.tied_head = true;
  config.names = HfTensorNames(config);
  EXPECT_TRUE(ValidateTensors(config, untied).ok()) << "a stored copy of the tied head is ignored";

  const auto others = OpenSafetensorsFolder(GoldenFolder("llama"));
  ASSERT_TRUE(others.ok());
  ModelConfig llama = Golden("llama");
  llama.tied_head = false;
  llama.names = HfTensorNames(llama);
  const TensorIndex tied((*others)[0].tensors, {(*others)[0].file});
  EXPECT_EQ(ValidateTensors(llama, tied).message(), "tensor \"lm_head.weight\" is missing");
}

}  // namespace
}  // namespace sysone
