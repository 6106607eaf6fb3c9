// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "model/byte_level.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

using Ids = std::vector<TokenId>;

// Byte-level BPE with ids 0 to 255 for the bytes, then the given tokens with their types.
struct GgufTokenizer {
  std::string model = "gpt2";
  std::string pre = "qwen2";
  std::vector<std::pair<std::string, int32_t>> more_tokens = {
      {"ab", 1}, {"abc", 1}, {"<|im_end|>", 3}, {"<think>", 4}, {"[PAD260]", 5}};
  std::vector<std::string> merges = {"a b"};
  size_t missing_types = 0;

  Result<std::shared_ptr<const Tokenizer>> Load() const {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back(SpellingOfByte(static_cast<uint8_t>(byte)));
    std::vector<int32_t> types(256, 1);
    for (const auto& [token, type] : more_tokens) {
      tokens.push_back(token);
      types.push_back(type);
    }
    types.resize(types.size() - missing_types);
    GgufWriter writer;
    writer.String("tokenizer.ggml.model", model)
        .String("tokenizer.ggml.pre", pre)
        .Strings("tokenizer.ggml.tokens", tokens)
        .Array("tokenizer.ggml.token_type", kGgufI32, types)
        .Strings("tokenizer.ggml.merges", merges);
    const TempFolder folder;
    const auto file = GgufFile::Open(folder.Write("tokenizer.gguf", writer.Bytes()));
    SYSONE_CHECK(file.ok(), "%s", file.status().message().c_str());
    return Tokenizer::FromGguf(**file);
  }
};

Ids Encode(const GgufTokenizer& gguf, std::string_view text) {
  const auto tokenizer = gguf.Load();
  SYSONE_CHECK(tokenizer.ok(), "%s", tokenizer.status().message().c_str());
  Ids ids;
  (*tokenizer)->Encode(text, ids);
  return ids;
}

TEST(TokenizerGguf, ControlAndUserDefinedTokensAreFoundInTheTextAndUnusedOnesAreNot) {
  EXPECT_EQ(Encode({}, "ab<|im_end|><think>"), (Ids{256, 258, 259}));
  EXPECT_EQ(Encode({}, "[PAD260]").size(), 8u);
}

TEST(TokenizerGguf, QwenNormalisesAndTheOthersDoNot) {
  GgufTokenizer gguf;
  EXPECT_EQ(Encode(gguf, "e\u0301"), (Ids{0xC3, 0xA9}));
  gguf.pre = "qwen35";
  EXPECT_EQ(Encode(gguf, "e\u0301"), (Ids{0xC3, 0xA9}));
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "lfm2"}) {
    gguf.pre = pre;
    EXPECT_EQ(Encode(gguf, "e\u0301"), (Ids{'e', 0xCC, 0x81})) << pre;
  }
}

TEST(TokenizerGguf, LlamaAndLfmIgnoreMergesAndTheOthersDoNot) {
  GgufTokenizer gguf;
  for (const char* pre : {"llama-bpe", "llama3", "lfm2"}) {
    gguf.pre = pre;
    EXPECT_EQ(Encode(gguf, "abc"), (Ids{257})) << pre;
  }
  for (const char* pre : {"gpt-2", "smollm", "qwen2", "qwen35"}) {
    gguf.pre = pre;
    EXPECT_EQ(Encode(gguf, "abc"), (Ids{256, 'c'})) << pre;
  }
}

TEST(TokenizerGguf, NumbersAreCutAsTheFamilyDoes) {
  GgufTokenizer gguf;
  gguf.more_tokens = {{"12", 1}, {"123", 1}, {"1234", 1}};
  gguf.merges = {"1 2", "12 3", "123 4"};
  gguf.pre = "gpt-2";
  EXPECT_EQ(Encode(gguf, "1234"), (Ids{258}));
  gguf.pre = "llama-bpe";
  EXPECT_EQ(Encode(gguf, "1234"), (Ids{257, '4'}));
  for (const char* pre : {"smollm", "qwen2", "qwen35"}) {
    gguf.pre = pre;
    EXPECT_EQ(Encode(gguf, "1234"), (Ids{'1', '2', '3', '4'})) << pre;
  }
}

void ExpectRefused(const GgufTokenizer& gguf, Code code, const char* what) {
  const auto tokenizer = gguf.Load();
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), code);
  EXPECT_NE(tokenizer.status().message().find(what), std::string::npos)
      << tokenizer.status().message();
}

TEST(TokenizerGguf, OtherKindsAreRefusedByName) {
  GgufTokenizer gguf;
  gguf.model = "llama";
  ExpectRefused(gguf, Code::kUnsupported, "\"llama\"");
  gguf.model = "gpt2";
  gguf.pre = "deepseek-v3";
  ExpectRefused(gguf, Code::kUnsupported, "\"deepseek-v3\"");
}

TEST(TokenizerGguf, MetadataThatContradictsItselfIsCorrupt) {
  GgufTokenizer gguf;
  gguf.missing_types = 1;
  ExpectRefused(gguf, Code::kCorrupt, "token_type");
  gguf = {};
  gguf.more_tokens.emplace_back("x", 9);
  ExpectRefused(gguf, Code::kCorrupt, "token_type[261]");
  gguf = {};
  gguf.merges = {"ab"};
  ExpectRefused(gguf, Code::kCorrupt, "merges[0]");
  gguf.merges = {"a bc"};
  ExpectRefused(gguf, Code::kCorrupt, "merge 0");
}

}  // namespace
}  // namespace sysone
