// A small tokenizer.json for tests, changed part by part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/byte_level.h"
#include "model/tokenizer.h"

namespace sysone {

// Every part is JSON text; the default is byte-level BPE whose ids 0 to 255 are the bytes, with a few merges.
struct TokenizerJson {
  std::string normalizer = "null";
  std::string pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  std::string added_tokens = "[]";
  std::vector<std::string> more_tokens = {"he", "ll", "hell", "hello",
                                          "\u0120t"};  // ids from 256 on
  std::string merges = R"([["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["\u0120", "t"]])";
  std::string model_type = "BPE";
  std::string model_extra;  // more members of the model: ", \"ignore_merges\": true"

  std::string Text() const {
    std::string vocab;
    const auto add = [&vocab](std::string_view token, int id) {
      if (!vocab.empty()) vocab += ", ";
      const std::string escape = token == "\"" || token == "\\" ? "\\" : "";
      vocab += "\"" + escape + std::string(token) + "\": " + std::to_string(id);
    };
    for (int byte = 0; byte < 256; ++byte) add(SpellingOfByte(static_cast<uint8_t>(byte)), byte);
    for (size_t i = 0; i < more_tokens.size(); ++i) add(more_tokens[i], 256 + static_cast<int>(i));
    return R"({"version": "1.0", "added_tokens": )" + added_tokens + R"(, "normalizer": )" +
           normalizer + R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "model": {"type": ")" +
           model_type + R"(", "vocab": {)" + vocab + R"(}, "merges": )" + merges + model_extra +
           "}}";
  }
};

inline std::vector<TokenId> EncodeAll(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.Encode(text, ids);
  return ids;
}

}  // namespace sysone
