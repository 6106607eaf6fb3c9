// What a tokenizer file says, in one form for every format: the readers of tokenizer.json and of GGUF fill it, and
// BuildTokenizer makes the tokenizer. Private to the tokenizer's own files and its tests.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "model/split_pattern.h"
#include "model/tokenizer.h"

namespace sysone {

// A token that is looked for in the text itself, before any splitting.
struct AddedToken {
  std::string content;
  TokenId id = 0;            // set by BuildTokenizer, by the library's rule
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalised text, not in the raw text
};

// Whether digits are cut out first: not at all, each one alone, or runs of them.
enum class DigitSplit : uint8_t { kNone, kEach, kRuns };

// Views point into the file's own memory, which need only live until the tokenizer is built.
struct TokenizerSpec {
  std::vector<std::pair<std::string_view, TokenId>> vocab;            // in byte-level spelling
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // best first
  std::vector<AddedToken> added_tokens;
  bool nfc = false;
  // Cuts before byte pair encoding, in this order: at digits, then by the pattern.
  DigitSplit digits = DigitSplit::kNone;
  SplitPattern pattern = SplitPattern::kWhole;
  bool add_prefix_space = false;  // between the two cuts; a piece that starts with a space stays
  bool ignore_merges = false;  // a word of the vocabulary is taken whole, whatever the merges say
  bool byte_fallback = false;  // a character that is no token is written as its <0xXX> tokens
  bool fuse_unk = false;
  std::optional<std::string> unk_token;
};

// kCorrupt when parts contradict each other (a merge of unknown tokens …), kUnsupported past our limits on sizes.
Result<std::shared_ptr<const Tokenizer>> BuildTokenizer(TokenizerSpec spec);

}  // namespace sysone
