// The chat template of a checkpoint and the special tokens that it may use, from a Hugging Face folder or from GGUF.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "base/status.h"

namespace sysone {

// What a chat template needs besides the conversation.
struct ChatTemplateSource {
  std::string text;                                   // Jinja source; empty: the checkpoint has none
  std::map<std::string, std::string> special_tokens;  // "bos_token", "eos_token", … as the template sees them
};

// chat_template.jinja, else "chat_template" of tokenizer_config.json; neither file need exist.
Result<ChatTemplateSource> ReadHfChatTemplate(const std::string& folder);

// tokenizer.chat_template, and the texts of the special token ids.
class GgufFile;
Result<ChatTemplateSource> ReadGgufChatTemplate(const GgufFile& file);

}  // namespace sysone
