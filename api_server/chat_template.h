// The model's own chat template, rendered by Jinja2 itself in an embedded CPython, with the
// settings, filters and globals that Hugging Face gives it. The only part of sysone that knows
// Python; nothing of it shows in this header.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api_server/prompt_frame.h"
#include "base/json.h"
#include "base/status.h"

namespace sysone {

// One turn of a chat, as templates see it.
struct ChatMessage {
  std::string role;
  std::string content;
};

// Compiled once, rendered from any thread (renders take turns: CPython runs one at a time). The
// interpreter starts with the first template of the process and stays until its end; it reads no
// environment, no user folders and installs no signal handlers. Templates run in Jinja2's immutable
// sandbox and cannot reach files or modules.
class ChatTemplate {
 public:
  // `special_tokens`: "bos_token", "eos_token", … as the template sees them. kUnsupported, with
  // Jinja2's message and line, when the text does not compile; kInternal when Python or Jinja2
  // cannot be started.
  static Result<std::shared_ptr<const ChatTemplate>> Compile(
      const std::string& text, const std::map<std::string, std::string>& special_tokens);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // As transformers' apply_chat_template(messages, add_generation_prompt=…, tokenize=False,
  // **kwargs). `kwargs` is an object or null; its members win over special tokens of the same name.
  // kInvalidArgument, with the template's own message, when the template refuses the conversation
  // (raise_exception) or fails on it.
  Result<std::string> Render(const std::vector<ChatMessage>& messages, const Json& kwargs,
                             bool add_generation_prompt) const;

  // What Render(messages with these roles, kwargs, true) writes round the contents, for every content that fits the frame.
  // nullopt when the rendering depends on the contents, on time or on chance in a way that is not followed. Some
  // milliseconds: for start-up.
  std::optional<PromptFrame> FindFrame(std::span<const std::string_view> roles,
                                       const Json& kwargs) const;

 private:
  bool Confirmed(const PromptFrame& frame, std::span<const std::string_view> roles,
                 const Json& kwargs) const;

  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sysone
