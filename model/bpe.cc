// SPDX-License-Identifier: Apache-2.0
#include "model/bpe.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "model/byte_level.h"

namespace sysone {

Result<BpeModel> BpeModel::Build(const TokenizerSpec& spec) {
  BpeModel model;
  SYSONE_RETURN_IF_ERROR(model.AddVocabulary(spec));
  SYSONE_RETURN_IF_ERROR(model.AddMerges(spec));
  SYSONE_RETURN_IF_ERROR(model.AddBytes(spec));
  model.MarkWholeWords(spec);
  return model;
}

Status BpeModel::AddVocabulary(const TokenizerSpec& spec) {
  // A spelling is never shorter than its bytes, so this makes room enough for the long ones; the others lie in between.
  size_t long_words = 0;
  for (const auto& [spelling, id] : spec.vocab)
    long_words += spelling.size() > WordTable::kShortBytes;
  words_ = WordTable(spec.vocab.size(), long_words);
  std::string bytes;
  for (const auto& [spelling, id] : spec.vocab) {
    if (id < 0 || static_cast<uint32_t>(id) > PairTable::kMaxId)
      return Error(Code::kUnsupported, "token id %d is outside 0 to %u", id, PairTable::kMaxId);
    if (!spelling.empty() && BytesFromSpelling(spelling, bytes))
      words_.Set(bytes, static_cast<uint32_t>(id) << 1);
  }
  return {};
}

Status BpeModel::AddMerges(const TokenizerSpec& spec) {
  if (spec.merges.size() > PairTable::kMaxRank)
    return Error(Code::kUnsupported, "%zu merges; we take at most %u", spec.merges.size(),
                 PairTable::kMaxRank);
  pairs_ = PairTable(spec.merges.size());
  merged_.reserve(spec.merges.size());
  std::string left, right;
  for (const auto& [left_spelling, right_spelling] : spec.merges) {
    const auto rank = static_cast<uint32_t>(merged_.size());
    merged_.push_back(kNoId);
    // A token that no bytes spell cannot come up in a word, and so its merges cannot either.
    if (!BytesFromSpelling(left_spelling, left) || !BytesFromSpelling(right_spelling, right))
      continue;
    const uint32_t left_id = words_.Find(left), right_id = words_.Find(right);
    const uint32_t merged_id = words_.Find(left + right);
    if (left_id == WordTable::kNone || right_id == WordTable::kNone ||
        merged_id == WordTable::kNone)
      return Error(Code::kCorrupt,
                   "merge %u (\"%.*s\" + \"%.*s\"): a part or the whole is not in the vocabulary",
                   rank, static_cast<int>(left_spelling.size()), left_spelling.data(),
                   static_cast<int>(right_spelling.size()), right_spelling.data());
    merged_.back() = merged_id >> 1;
    pairs_.Set(left_id >> 1, right_id >> 1, rank);
  }
  return {};
}

Status BpeModel::AddBytes(const TokenizerSpec& spec) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const uint32_t value = words_.Find({&c, 1});
    id_of_byte_[byte] = value == WordTable::kNone ? kNoId : value >> 1;
    if (id_of_byte_[byte] != kNoId || !spec.byte_fallback) continue;
    // The library falls back on the bytes of the character that spells the byte.
    for (const char part : SpellingOfByte(static_cast<uint8_t>(byte))) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>",
                    static_cast<unsigned>(static_cast<uint8_t>(part)));
      const uint32_t token = words_.Find(name);
      if (token == WordTable::kNone) {
        fallback_[byte].clear();
        break;
      }
      fallback_[byte].push_back(token >> 1);
    }
  }
  byte_ranks_.assign(256 * 256, kNoRank);
  for (uint32_t left = 0; left < 256; ++left)
    for (uint32_t right = 0; right < 256; ++right)
      if (id_of_byte_[left] != kNoId && id_of_byte_[right] != kNoId)
        byte_ranks_[left * 256 + right] = pairs_.Find(id_of_byte_[left], id_of_byte_[right]);
  fuse_unknown_ = spec.fuse_unk;
  if (!spec.unk_token) return {};
  std::string bytes;
  const uint32_t unknown = BytesFromSpelling(*spec.unk_token, bytes) && !bytes.empty()
                               ? words_.Find(bytes)
                               : WordTable::kNone;
  if (unknown == WordTable::kNone)
    return Error(Code::kCorrupt, "unk_token \"%s\" is not in the vocabulary",
                 spec.unk_token->c_str());
  unknown_id_ = unknown >> 1;
  return {};
}

void BpeModel::MarkWholeWords(const TokenizerSpec& spec) {
  BpeScratch scratch;
  std::vector<TokenId> ids;
  std::string bytes;
  for (const auto& [spelling, id] : spec.vocab) {
    if (spelling.empty() || !BytesFromSpelling(spelling, bytes)) continue;
    ids.clear();
    if (!spec.ignore_merges) Encode(bytes, scratch, ids);
    const uint32_t token = words_.Find(bytes) >> 1;
    if (spec.ignore_merges || (ids.size() == 1 && static_cast<uint32_t>(ids[0]) == token))
      words_.Set(bytes, token << 1 | 1);
  }
}

std::optional<TokenId> BpeModel::Find(std::string_view bytes) const {
  const uint32_t value = bytes.empty() ? WordTable::kNone : words_.Find(bytes);
  if (value == WordTable::kNone) return std::nullopt;
  return static_cast<TokenId>(value >> 1);
}

void BpeModel::Encode(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  const uint32_t value = words_.Find(word);
  if (value != WordTable::kNone && (value & 1)) {
    out.push_back(static_cast<TokenId>(value >> 1));
    return;
  }
  const bool all_known = std::all_of(word.begin(), word.end(), [this](char c) {
    return id_of_byte_[static_cast<uint8_t>(c)] != kNoId;
  });
  if (all_known && word.size() <= kShortWord) return MergeShort(word, out);
  scratch.ids.clear();
  if (all_known)
    for (const char c : word) scratch.ids.push_back(id_of_byte_[static_cast<uint8_t>(c)]);
  else
    ReplaceUnknown(word, scratch.ids);
  MergeLong(scratch, out);
}

void BpeModel::MergeShort(std::string_view word, std::vector<TokenId>& out) const {
  uint32_t ids[kShortWord];
  uint32_t ranks[kShortWord];  // of the pair that starts at this place
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) ids[i] = id_of_byte_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < count; ++i)
    ranks[i] =
        byte_ranks_[static_cast<uint8_t>(word[i]) * 256u + static_cast<uint8_t>(word[i + 1])];
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    ids[best] = merged_[ranks[best]];
    --count;
    for (size_t i = best + 1; i < count; ++i) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) ranks[i] = ranks[i + 1];
    if (best > 0) ranks[best - 1] = pairs_.Find(ids[best - 1], ids[best]);
    if (best + 1 < count) ranks[best] = pairs_.Find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + count);
}

void BpeModel::MergeLong(BpeScratch& scratch, std::vector<TokenId>& out) const {
  // Tokens are a linked list over their first places. The heap holds rank << 32 | place, so that its least is the best
  // pair, the leftmost of equals; an entry whose rank is no longer that of its place is out of date and is passed over.
  auto& [ids, ranks, next, previous, heap] = scratch;
  const auto count = static_cast<uint32_t>(ids.size());
  if (count == 0) return;
  ranks.assign(count, kNoRank);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first: never read, for it is compared with 0 before
    if (i + 1 == count) continue;
    ranks[i] = pairs_.Find(ids[i], ids[i + 1]);
    if (ranks[i] != kNoRank) heap.push_back(static_cast<uint64_t>(ranks[i]) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto rank_again = [&](uint32_t place) {
    ranks[place] = next[place] == count ? kNoRank : pairs_.Find(ids[place], ids[next[place]]);
    if (ranks[place] == kNoRank) return;
    heap.push_back(static_cast<uint64_t>(ranks[place]) << 32 | place);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const auto rank = static_cast<uint32_t>(heap.front() >> 32);
    const auto place = static_cast<uint32_t>(heap.front());
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    if (ranks[place] != rank) continue;
    const uint32_t taken = next[place];
    ids[place] = merged_[rank];
    ranks[taken] = kNoRank;
    next[place] = next[taken];
    if (next[place] < count) previous[next[place]] = place;
    if (place > 0) rank_again(previous[place]);
    rank_again(place);
  }
  for (uint32_t i = 0; i < count; i = next[i]) out.push_back(static_cast<TokenId>(ids[i]));
}

void BpeModel::ReplaceUnknown(std::string_view word, std::vector<uint32_t>& ids) const {
  bool unknown_pending = false;
  for (const char c : word) {
    const auto byte = static_cast<uint8_t>(c);
    if (id_of_byte_[byte] != kNoId) {
      if (unknown_pending) ids.push_back(unknown_id_);
      unknown_pending = false;
      ids.push_back(id_of_byte_[byte]);
    } else if (!fallback_[byte].empty()) {
      // The library does not write a pending unknown token first: it comes after these.
      ids.insert(ids.end(), fallback_[byte].begin(), fallback_[byte].end());
    } else if (unknown_id_ != kNoId) {
      if (unknown_pending && !fuse_unknown_) ids.push_back(unknown_id_);
      unknown_pending = true;
    }
  }
  if (unknown_pending) ids.push_back(unknown_id_);
}

}  // namespace sysone
