// SPDX-License-Identifier: Apache-2.0
#include "model/chat_template_source.h"

#include <string_view>

#include "base/json.h"
#include "model/gguf.h"
#include "model/mapped_file.h"
#include "model/model_folder.h"

namespace sysone {
namespace {

// Name in templates and the GGUF key of its id.
constexpr struct {
  const char* name;
  const char* gguf_key;
} kSpecialTokens[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"},  // the format's own spelling
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
};

// One template, or several with names of which "default" is for plain conversations.
Result<std::string> TemplateText(const Json& field) {
  if (field.is_null()) return std::string();
  if (field.is_string()) return field.string();
  if (!field.is_array()) return Error(Code::kCorrupt, "\"chat_template\" is neither text nor list");
  std::string names;
  for (const Json& entry : field.items()) {
    const Json* const name = entry.Find("name");
    const Json* const text = entry.Find("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string())
      return Error(Code::kCorrupt, "an entry of \"chat_template\" lacks name or template");
    if (name->string() == "default") return text->string();
    names += " " + name->string();
  }
  return Error(Code::kUnsupported, "\"chat_template\" has no \"default\", only:%s", names.c_str());
}

// A token is written as its text or as an object with "content".
Result<std::string> TokenText(const char* name, const Json& field) {
  const Json* const content = field.is_object() ? field.Find("content") : &field;
  if (content == nullptr || !content->is_string())
    return Error(Code::kCorrupt, "\"%s\" is %s", name, field.Dump().c_str());
  return content->string();
}

Result<ChatTemplateSource> ReadTokenizerConfig(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const auto json = Json::Parse(text);
  if (!json.ok()) return Status(Code::kCorrupt, json.status().message());
  ChatTemplateSource source;
  if (const Json* const field = json->Find("chat_template")) {
    SYSONE_ASSIGN_OR_RETURN(source.text, TemplateText(*field));
  }
  for (const auto& token : kSpecialTokens) {
    const Json* const field = json->Find(token.name);
    if (field == nullptr || field->is_null()) continue;
    SYSONE_ASSIGN_OR_RETURN(source.special_tokens[token.name], TokenText(token.name, *field));
  }
  return source;
}

}  // namespace

Result<ChatTemplateSource> ReadHfChatTemplate(const std::string& folder) {
  ChatTemplateSource source;
  if (const std::string path = folder + "/tokenizer_config.json"; PathExists(path)) {
    auto read = ReadTokenizerConfig(path);
    if (!read.ok()) return read.status().WithContext(path);
    source = *std::move(read);
  }
  if (const std::string path = folder + "/chat_template.jinja"; PathExists(path)) {
    SYSONE_ASSIGN_OR_RETURN(source.text, ReadWholeFile(path));
  }
  return source;
}

Result<ChatTemplateSource> ReadGgufChatTemplate(const GgufFile& file) {
  ChatTemplateSource source;
  source.text = file.String("tokenizer.chat_template").value_or("");
  const auto tokens = file.Strings("tokenizer.ggml.tokens");
  for (const auto& token : kSpecialTokens) {
    const auto id = file.Int(token.gguf_key);
    if (!id || *id == -1 || *id == 0xffffffff) continue;  // -1 in either width means none
    if (!tokens || *id < 0 || static_cast<uint64_t>(*id) >= tokens->size())
      return Error(Code::kCorrupt, "%s: \"%s\" is %lld, there are %zu tokens", file.path().c_str(),
                   token.gguf_key, static_cast<long long>(*id), tokens ? tokens->size() : 0);
    source.special_tokens[token.name] = std::string((*tokens)[static_cast<size_t>(*id)]);
  }
  return source;
}

}  // namespace sysone
