// Byte-level BPE, from a Hugging Face tokenizer.json or from GGUF metadata; the ids are those of the `tokenizers` library.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sysone {

using TokenId = int32_t;

class GgufFile;

// Immutable after it is built; any thread may encode.
class Tokenizer {
 public:
  // kUnsupported names the part (model type, normalizer, pre-tokenizer pattern …) that we do not implement.
  static Result<std::shared_ptr<const Tokenizer>> FromHfJson(std::string_view tokenizer_json);
  static Result<std::shared_ptr<const Tokenizer>> FromGguf(const GgufFile& file);
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` (valid UTF-8) to `out`. Added and special tokens written in the text are recognised, as the
  // `tokenizers` library does with add_special_tokens = false: nothing is put before or after.
  virtual void Encode(std::string_view text, std::vector<TokenId>& out) const = 0;

  // For texts that are encoded in parts: appends the ids that `text`, which ends in a line feed, has when a text that starts
  // with the ASCII letter or digit `next` follows; the ids of both together are these and then those of the second alone.
  // False, with nothing appended, where this tokenizer does not promise that.
  virtual bool EncodeBefore(std::string_view /*text*/, char /*next*/,
                            std::vector<TokenId>& /*out*/) const {
    return false;
  }

  // The bytes of the ids put together; special tokens included as their text.
  virtual std::string Decode(const TokenId* ids, size_t count) const = 0;

  // The id whose whole text is `token` (the vocabulary's own spelling for added tokens), if any.
  virtual std::optional<TokenId> TokenToId(std::string_view token) const = 0;
  virtual int32_t vocab_size() const = 0;  // largest id + 1
};

}  // namespace sysone
