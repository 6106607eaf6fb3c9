// A chat template with its work done: the fixed text around the contents of messages, and the conditions under which the
// template writes exactly this text. Filling a frame in costs a copy where rendering the template costs a Python program.
// Pure; chat_template.h makes frames.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sysone {

// Something about one message's content that must hold, or the frame does not describe the rendering.
struct ContentGuard {
  enum class Kind {
    kNotEmpty,
    kTrimmed,          // no white space (Python's) at either end
    kStartsOtherwise,  // does not start with `text`
    kEndsOtherwise,
    kLacks,    // does not hold `text`
    kDiffers,  // is not `text`
  };
  Kind kind = Kind::kNotEmpty;
  size_t message = 0;
  std::string text;

  bool Holds(std::string_view content) const;
};

// Immutable; any thread.
class PromptFrame {
 public:
  // Reads what the tracer says of a conversation of `messages` messages. nullopt when the last message's content does not
  // stand exactly once, behind all others.
  static std::optional<PromptFrame> FromTrace(const Json& trace, size_t messages);

  bool has_guards() const { return !guards_.empty(); }
  // Whether the frame is what the template would render; `contents` in the order of messages.
  bool Fits(std::span<const std::string_view> contents) const;

  // The rendered text up to the last message's content (which is not looked at), and what follows that content.
  void AppendHead(std::span<const std::string_view> contents, std::string& out) const;
  const std::string& tail() const { return tail_; }

 private:
  struct Part {
    std::string text;               // of a fixed part
    std::optional<size_t> message;  // else: this message's content
  };

  std::vector<Part> head_;
  std::string tail_;
  std::vector<ContentGuard> guards_;
};

}  // namespace sysone
