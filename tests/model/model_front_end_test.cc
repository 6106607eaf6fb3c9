// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "model/mapped_file.h"
#include "model/model_files.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {
namespace fs = std::filesystem;

const std::string kGolden = SYSONE_SOURCE_DIR "/tests/golden/";

class ModelFrontEndTest : public ::testing::Test {
 protected:
  void ExpectError(const std::string& path, Code code, const std::string& text) {
    const auto front = OpenModelFrontEnd(path);
    ASSERT_FALSE(front.ok()) << "should say: " << text;
    EXPECT_EQ(front.status().code(), code) << front.status().message();
    EXPECT_NE(front.status().message().find(text), std::string::npos)
        << front.status().message() << "\nshould say: " << text;
  }
  std::string Copy(const std::string& family) {
    const std::string to = folder_.path() + "/" + family;
    fs::remove_all(to);
    fs::copy(kGolden + family, to);
    return to;
  }
  TempFolder folder_;
};

// A GGUF file with one token per byte; `rows` of the embedding.
std::string TinyGguf(uint64_t rows) {
  // The 256 characters that byte-level BPE writes bytes as, 0xa1 to 0x1a0: enough here, since only ids are asked for.
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) {
    const int code = 0xa1 + i;
    tokens.push_back({static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))});
  }
  tokens.push_back("<|end|>");
  std::vector<int32_t> types(tokens.size(), 1);
  types.back() = 3;  // control
  GgufWriter writer;
  writer.String("general.architecture", "llama")
      .U32("llama.block_count", 1)
      .U32("llama.embedding_length", 8)
      .U32("llama.feed_forward_length", 8)
      .U32("llama.attention.head_count", 2)
      .U32("llama.context_length", 16)
      .F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "qwen2")
      .Strings("tokenizer.ggml.tokens", tokens)
      .Strings("tokenizer.ggml.merges", {})
      .Array("tokenizer.ggml.token_type", kGgufI32, types)
      .U32("tokenizer.ggml.eos_token_id", 256)
      .String("tokenizer.chat_template", "{{ messages }}")
      .Tensor("token_embd.weight", {8, rows}, 0, std::string(8 * rows * 4, '\0'));
  return writer.Bytes();
}

TEST_F(ModelFrontEndTest, OpensTheGoldenFolders) {
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"}) {
    const auto front = OpenModelFrontEnd(kGolden + family);
    ASSERT_TRUE(front.ok()) << front.status().message();
    EXPECT_EQ(front->config.vocab, 768);
    std::vector<TokenId> ids;
    front->tokenizer->Encode("The light is green", ids);
    EXPECT_EQ(ids, (std::vector<TokenId>{332, 698, 327, 644})) << "the golden's first prompt";
    EXPECT_NE(front->chat_template.text.find("<|im_start|>"), std::string::npos);
    EXPECT_EQ(front->chat_template.special_tokens.at("eos_token"), "<|im_end|>");
    EXPECT_EQ(front->chat_template.special_tokens.count("bos_token"), 0u);
    const auto weights = OpenModelWeights(kGolden + family);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    EXPECT_EQ(front->fingerprint, weights->fingerprint);
  }
}

TEST_F(ModelFrontEndTest, OpensAGgufFileAndAFolderAroundIt) {
  const std::string path = folder_.Write("repo/m.gguf", TinyGguf(260));
  for (const std::string& model : {path, folder_.path() + "/repo"}) {
    const auto front = OpenModelFrontEnd(model);
    ASSERT_TRUE(front.ok()) << front.status().message();
    EXPECT_EQ(front->tokenizer->TokenToId("<|end|>"), 256);
    EXPECT_EQ(front->chat_template.text, "{{ messages }}");
    EXPECT_EQ(front->chat_template.special_tokens.at("eos_token"), "<|end|>");
  }
}

TEST_F(ModelFrontEndTest, EveryIdNeedsARowOfTheEmbedding) {
  ExpectError(folder_.Write("m.gguf", TinyGguf(256)), Code::kCorrupt,
              "the tokenizer has 257 ids, the embedding 256 rows");
}

TEST_F(ModelFrontEndTest, NamesMissingAndBrokenFiles) {
  ExpectError(folder_.path() + "/absent", Code::kNotFound, "absent: no such file or folder");
  std::string copy = Copy("qwen2");
  fs::remove(copy + "/tokenizer.json");
  ExpectError(copy, Code::kNotFound, "tokenizer.json is missing");
  folder_.Write("qwen2/tokenizer.json", "{");
  const auto broken = OpenModelFrontEnd(copy);
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.status().message().find("qwen2/tokenizer.json: "), std::string::npos)
      << broken.status().message();
  copy = Copy("qwen2");
  folder_.Write("qwen2/tokenizer_config.json", "[");
  ExpectError(copy, Code::kCorrupt, "tokenizer_config.json: ");
}

}  // namespace
}  // namespace sysone
