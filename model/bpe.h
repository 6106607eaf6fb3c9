// Byte pair encoding of one word: its bytes become tokens, and the best-ranked pair of neighbours is joined until no pair
// can be. Most words are tokens themselves and are settled by one look into the vocabulary.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/pair_table.h"
#include "model/tokenizer_spec.h"
#include "model/word_table.h"

namespace sysone {

// Buffers of one caller, kept between calls.
struct BpeScratch {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> next;
  std::vector<uint32_t> previous;
  std::vector<uint64_t> heap;
};

// Immutable after Build; any thread may encode.
class BpeModel {
 public:
  // kCorrupt or kUnsupported as for BuildTokenizer.
  static Result<BpeModel> Build(const TokenizerSpec& spec);

  // Appends the ids of one word (not empty). Time: linear in its length for a token, n log n at worst.
  void Encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;

  // The token whose bytes are exactly these.
  std::optional<TokenId> Find(std::string_view bytes) const;

 private:
  static constexpr uint32_t kNoRank = PairTable::kNoRank;
  static constexpr uint32_t kNoId = 0xFFFFFFFF;
  // Up to this many bytes, looking along all pairs for the best is faster than keeping a heap.
  static constexpr size_t kShortWord = 32;

  Status AddVocabulary(const TokenizerSpec& spec);
  Status AddMerges(const TokenizerSpec& spec);
  Status AddBytes(const TokenizerSpec& spec);
  void MarkWholeWords(const TokenizerSpec& spec);

  void MergeShort(std::string_view word, std::vector<TokenId>& out) const;
  void MergeLong(BpeScratch& scratch, std::vector<TokenId>& out) const;
  // Ids of the bytes, where some byte is no token: fallback, unknown token, or nothing.
  void ReplaceUnknown(std::string_view word, std::vector<uint32_t>& ids) const;

  // Value: id << 1 | 1 if the word always becomes this one token.
  WordTable words_;
  PairTable pairs_;
  std::vector<uint32_t> merged_;  // id that the merge of a rank makes
  std::array<uint32_t, 256> id_of_byte_{};
  std::vector<uint32_t>
      byte_ranks_;  // [first byte * 256 + second byte]: rank of the pair of two byte tokens
  std::array<std::vector<uint32_t>, 256>
      fallback_;  // the <0xXX> tokens of bytes that are no tokens
  uint32_t unknown_id_ = kNoId;
  bool fuse_unknown_ = false;
};

}  // namespace sysone
