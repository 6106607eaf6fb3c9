// A tokenizer small enough to see through: the longest known word at each place, else one byte.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/tokenizer.h"

namespace sysone {

class FakeTokenizer : public Tokenizer {
 public:
  // Word i has the id 256 + i; the ids below are bytes.
  explicit FakeTokenizer(std::vector<std::string> words) : words_(std::move(words)) {}

  // ChatML's markers, yes and no.
  static std::vector<std::string> ChatMlWords() {
    return {"<|im_start|>", "<|im_end|>", "<think>", "</think>", "yes", "no", "\n\n"};
  }

  void Encode(std::string_view text, std::vector<TokenId>& out) const override {
    while (!text.empty()) {
      size_t length = 1;
      TokenId id = static_cast<unsigned char>(text[0]);
      for (size_t i = 0; i < words_.size(); ++i) {
        if (words_[i].size() < length || !text.starts_with(words_[i])) continue;
        length = words_[i].size();
        id = static_cast<TokenId>(256 + i);
      }
      out.push_back(id);
      text.remove_prefix(length);
    }
  }

  std::string Decode(const TokenId* ids, size_t count) const override {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      if (ids[i] < 256) {
        text += static_cast<char>(ids[i]);
      } else {
        text += words_[static_cast<size_t>(ids[i]) - 256];
      }
    }
    return text;
  }

  std::optional<TokenId> TokenToId(std::string_view token) const override {
    for (size_t i = 0; i < words_.size(); ++i)
      if (words_[i] == token) return static_cast<TokenId>(256 + i);
    return std::nullopt;
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(256 + words_.size()); }

 private:
  const std::vector<std::string> words_;
};

}  // namespace sysone
