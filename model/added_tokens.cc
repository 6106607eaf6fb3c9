// SPDX-License-Identifier: Apache-2.0
#include "model/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "model/unicode.h"

namespace sysone {
namespace {

// Start of the character that ends before `end` (end > 0).
size_t CharBegin(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

uint8_t ClassAt(std::string_view text, size_t at, size_t* next = nullptr) {
  const CodePoint c = DecodeUtf8(text.data() + at, text.data() + text.size());
  if (next != nullptr) *next = at + c.length;
  return CharClasses::Get().Of(c.value);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens,
                                   const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)) {
  struct Growing {
    uint32_t token = kNoToken;
    std::map<uint8_t, uint32_t> children;
  };
  std::vector<Growing> trie(1);
  for (size_t i = 0; i < patterns.size(); ++i) {
    uint32_t node = 0;
    for (const char c : patterns[i]) {
      const auto [child, added] =
          trie[node].children.emplace(static_cast<uint8_t>(c), static_cast<uint32_t>(trie.size()));
      node = child->second;
      if (added) trie.emplace_back();
    }
    if (node == 0) continue;
    if (trie[node].token == kNoToken) trie[node].token = static_cast<uint32_t>(i);
    starts_[static_cast<uint8_t>(patterns[i][0])] = true;
  }
  for (const Growing& node : trie) {
    nodes_.push_back({node.token, static_cast<uint32_t>(edges_.size())});
    for (const auto& [byte, child] : node.children) edges_.push_back({byte, child});
  }
  nodes_.push_back({kNoToken, static_cast<uint32_t>(edges_.size())});
  if (trie[0].children.size() == 1) only_start_ = trie[0].children.begin()->first;
}

bool AddedTokenFinder::FindNext(std::string_view text, size_t from, Match& match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (only_start_ >= 0) {
      const void* found = std::memchr(text.data() + begin, only_start_, text.size() - begin);
      if (found == nullptr) return false;
      begin = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    } else if (!starts_[static_cast<uint8_t>(text[begin])]) {
      continue;
    }
    match.token = kNoToken;
    uint32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto first = edges_.begin() + nodes_[node].first_edge;
      const auto last = edges_.begin() + nodes_[node + 1].first_edge;
      const auto edge = std::find_if(
          first, last,
          [byte = static_cast<uint8_t>(text[at])](const Edge& e) { return e.byte == byte; });
      if (edge == last) break;
      node = edge->node;
      if (nodes_[node].token != kNoToken) match = {begin, at + 1, nodes_[node].token};
    }
    if (match.token != kNoToken) return true;
  }
  return false;
}

bool AddedTokenFinder::StandsAlone(std::string_view text, const Match& match) {
  const bool word_before =
      match.begin > 0 && (ClassAt(text, CharBegin(text, match.begin)) & kWordChar);
  const bool word_after = match.end < text.size() && (ClassAt(text, match.end) & kWordChar);
  return !word_before && !word_after;
}

size_t AddedTokenFinder::SpaceBegin(std::string_view text, size_t end, size_t not_before) {
  size_t begin = end;
  while (begin > not_before) {
    const size_t last = CharBegin(text, begin);
    if (!(ClassAt(text, last) & kSpace)) break;
    begin = last;
  }
  return std::max(begin, not_before);
}

size_t AddedTokenFinder::SpaceEnd(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next;
    if (!(ClassAt(text, begin, &next) & kSpace)) break;
    begin = next;
  }
  return begin;
}

}  // namespace sysone
