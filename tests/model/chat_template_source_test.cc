// SPDX-License-Identifier: Apache-2.0
#include "model/chat_template_source.h"

#include <gtest/gtest.h>

#include "model/gguf.h"
#include "tests/model/gguf_writer.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

using Tokens = std::map<std::string, std::string>;

class ChatTemplateSourceTest : public ::testing::Test {
 protected:
  Result<ChatTemplateSource> Hf(const std::string& tokenizer_config) {
    folder_.Write("tokenizer_config.json", tokenizer_config);
    return ReadHfChatTemplate(folder_.path());
  }
  Result<ChatTemplateSource> Gguf(const GgufWriter& writer) {
    const auto file = GgufFile::Open(folder_.Write("m.gguf", writer.Bytes()));
    return file.ok() ? ReadGgufChatTemplate(**file) : file.status();
  }
  TempFolder folder_;
};

TEST_F(ChatTemplateSourceTest, ReadsTemplateAndTokensInBothSpellings) {
  const auto source = Hf(R"({"chat_template": "{{ x }}", "bos_token": "<s>", "pad_token": null,
    "eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": false},
    "additional_special_tokens": ["<a>"], "add_bos_token": true})");
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source->text, "{{ x }}");
  EXPECT_EQ(source->special_tokens, (Tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

TEST_F(ChatTemplateSourceTest, TheDefaultOfSeveralTemplatesIsTaken) {
  const auto source = Hf(R"({"chat_template": [{"name": "tool_use", "template": "T"},
                                               {"name": "default", "template": "D"}]})");
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source->text, "D");
  const auto none = Hf(R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
  EXPECT_NE(none.status().message().find("rag"), std::string::npos);
}

TEST_F(ChatTemplateSourceTest, AJinjaFileGoesBeforeTheConfigsTemplate) {
  folder_.Write("chat_template.jinja", "from file\n");
  const auto source = Hf(R"({"chat_template": "from config", "bos_token": "<s>"})");
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source->text, "from file\n");
  EXPECT_EQ(source->special_tokens, (Tokens{{"bos_token", "<s>"}}));
}

TEST_F(ChatTemplateSourceTest, AFolderMayHaveNone) {
  const auto source = ReadHfChatTemplate(folder_.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source->text, "");
  EXPECT_TRUE(source->special_tokens.empty());
  EXPECT_EQ(Hf(R"({"chat_template": null})")->text, "");
}

TEST_F(ChatTemplateSourceTest, NamesWhatIsWrong) {
  for (const char* text : {"{", R"({"chat_template": 3})", R"({"chat_template": [{"name": "a"}]})",
                           R"({"bos_token": 3})", R"({"eos_token": {"text": "x"}})"}) {
    const auto source = Hf(text);
    ASSERT_FALSE(source.ok()) << text;
    EXPECT_EQ(source.status().code(), Code::kCorrupt) << text;
    EXPECT_NE(source.status().message().find("tokenizer_config.json"), std::string::npos);
  }
}

TEST_F(ChatTemplateSourceTest, ReadsGgufIdsAsTexts) {
  GgufWriter writer;
  writer.Strings("tokenizer.ggml.tokens", {"<s>", "</s>", "a"});
  writer.String("tokenizer.chat_template", "{{ y }}").U32("tokenizer.ggml.bos_token_id", 0);
  writer.U32("tokenizer.ggml.eos_token_id", 1).U32("tokenizer.ggml.padding_token_id", 0xffffffff);
  const auto source = Gguf(writer);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source->text, "{{ y }}");
  EXPECT_EQ(source->special_tokens, (Tokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  writer.U32("tokenizer.ggml.mask_token_id", 3);
  const auto outside = Gguf(writer);
  ASSERT_FALSE(outside.ok());
  EXPECT_EQ(outside.status().code(), Code::kCorrupt);
  EXPECT_NE(outside.status().message().find("mask_token_id"), std::string::npos);
}

}  // namespace
}  // namespace sysone
