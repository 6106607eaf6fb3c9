// Finds added tokens in a text: of all tokens that start earliest the longest one, then on from its end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer_spec.h"

namespace sysone {

// Immutable after it is built; any thread may search.
class AddedTokenFinder {
 public:
  // `patterns[i]` is what to look for instead of `tokens[i].content` (the normalised text, for instance).
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);

  bool empty() const { return tokens_.empty(); }

  // Calls on_text(std::string_view) for the text between tokens, never empty, and on_token(TokenId) for tokens, in order.
  template <class OnText, class OnToken>
  void Split(std::string_view text, OnText&& on_text, OnToken&& on_token) const {
    size_t searched = 0;  // the next match starts here or later
    size_t taken = 0;     // end of the last token with its stripped space
    Match match;
    while (FindNext(text, searched, match)) {
      searched = match.end;
      const AddedToken& token = tokens_[match.token];
      if (token.single_word && !StandsAlone(text, match)) continue;
      if (token.lstrip) match.begin = SpaceBegin(text, match.begin, taken);
      if (token.rstrip) match.end = SpaceEnd(text, match.end);
      if (taken < match.begin) on_text(text.substr(taken, match.begin - taken));
      on_token(token.id);
      taken = match.end;
    }
    if (taken < text.size()) on_text(text.substr(taken));
  }

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    uint32_t token = 0;
  };
  static constexpr uint32_t kNoToken = 0xFFFFFFFF;
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  struct Node {
    uint32_t token = kNoToken;  // the token that ends here
    uint32_t first_edge = 0;    // its edges are edges_[first_edge, next node's first_edge)
  };

  bool FindNext(std::string_view text, size_t from, Match& match) const;
  static bool StandsAlone(std::string_view text, const Match& match);
  static size_t SpaceBegin(std::string_view text, size_t end, size_t not_before);
  static size_t SpaceEnd(std::string_view text, size_t begin);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;  // a trie; one node more at the end
  std::vector<Edge> edges_;
  std::array<bool, 256> starts_{};  // first bytes of all patterns
  int only_start_ = -1;             // the first byte, if all patterns share one
};

}  // namespace sysone
