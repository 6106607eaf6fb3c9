// Which tokens the rows of the key-value stores hold: the prefix cache. Pure: numbers of rows, no
// memory behind them; every layer's KvStore has the same numbering.
//
// The rows are dealt out in blocks of kBlockRows. A block holds up to that many tokens that follow
// each other, and hangs behind a token of its parent block (or at the start of a prompt), so the
// blocks form one tree of everything that was computed:
//
//   start ── [The parcel was sent on] ── [Monday. Question:] ── [Is money]     used 5 of 5
//                       └ behind token 3 ── [lost yesterday]
//
// Keys and values of a token hang on the tokens before it alone, so any path from the start is good
// for every prompt that begins with its tokens, down to the single token: nothing that is found is
// ever computed again. A block's identity is (salt, parent, place in the parent, first token); it is
// found by a hash of these and compared in full, then its tokens are compared one by one. No answer
// ever rests on a hash.
//
// Blocks below which somebody works ("in use") stay. The others are kept until their rows are
// wanted, least recently used first and never before the blocks behind them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sysone {

// A place in the tree: everything up to `used` tokens into `block`. Made by KvCache::Begin; held by
// its owner from then until KvCache::Release, moved by Advance and Append.
struct KvCursor {
  uint64_t salt = 0;   // prompts of different salts never meet
  int32_t block = -1;  // -1: the start
  int32_t used = 0;    // tokens of the block that belong to the path
};

class KvCache {
 public:
  // Small, because a branch leaves half a block empty on average; neighbours in the store are
  // handed out in order, so attention still sees long spans.
  static constexpr int32_t kBlockRows = 8;

  // Blocks that a prompt needs at most when nothing of it is found.
  static int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockRows - 1) / kBlockRows; }

  // keep_unused false: a block is forgotten when nobody uses it any more.
  KvCache(int32_t block_count, bool keep_unused);

  KvCursor Begin(uint64_t salt) const { return {salt, -1, 0}; }
  // A second holder of the same place.
  KvCursor Fork(const KvCursor& at);
  void Release(KvCursor& at);

  // Follows `tokens` as far as they are held; returns how many were found.
  int32_t Advance(KvCursor& at, std::span<const TokenId> tokens);
  // The same without moving or holding anything: `at` may be a place that nobody holds, as long as
  // nothing is appended meanwhile.
  int32_t Walk(KvCursor& at, std::span<const TokenId> tokens) const;
  // Gives rows to `tokens`, which must begin with one that Advance does not find, and appends the
  // rows to `rows`. Returns how many got one: fewer when every block is in use. The caller computes
  // them before it lets anybody read them.
  int32_t Append(KvCursor& at, std::span<const TokenId> tokens, std::vector<int32_t>& rows);
  // Appends the rows of the path from `from`, a place on it, to `to`, neighbours joined.
  void AppendPath(const KvCursor& from, const KvCursor& to, std::vector<KvSpan>& spans) const;
  // The row of the path's last token.
  int32_t LastRow(const KvCursor& at) const { return at.block * kBlockRows + at.used - 1; }

  // A block also stands for one stored hidden state, that of one of its tokens; the caller keeps the
  // values by block number. StateOf: the block when it is the state behind exactly this path, else
  // -1. `at` needs no holder as in Walk.
  int32_t StateOf(const KvCursor& at) const;
  void SetState(const KvCursor& at);

  // Forgets everything. Nobody may hold a place but the start.
  void Clear();

  bool keeps_unused() const { return keep_unused_; }
  int32_t block_count() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t blocks_held() const { return held_; }      // in use or kept
  int32_t blocks_in_use() const { return in_use_; }  // somebody works at or below them
  uint64_t evictions() const { return evictions_; }  // blocks forgotten for others, since the start

 private:
  struct Block {
    uint64_t salt = 0;
    uint64_t stamp = 0;   // when it was last in use
    int32_t parent = -1;  // -1: the start
    int32_t parent_used = 0;
    int32_t count = 0;       // tokens
    int32_t users = 0;       // holders and children in use
    int32_t children = 0;    // in use or kept
    int32_t state_used = 0;  // the stored state is that of token state_used - 1; 0: none
    int32_t next_in_bucket = -1;
    int32_t before = -1, after = -1;  // neighbours in the list it is in
    std::array<TokenId, kBlockRows> tokens;
  };
  // A list through Block::before and after.
  struct List {
    int32_t front = -1, back = -1;
  };

  Block& At(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& At(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }
  size_t Bucket(const KvCursor& parent, TokenId first) const;
  int32_t Find(const KvCursor& parent, TokenId first) const;
  int32_t NewBlock(const KvCursor& parent, TokenId first);  // -1: every block is in use
  void Forget(int32_t block);
  void Hold(int32_t block);
  void Drop(int32_t block);
  void Keep(int32_t block);
  void InsertAfter(List& list, int32_t before, int32_t block);
  void Unlink(List& list, int32_t block);

  const bool keep_unused_;
  std::vector<Block> blocks_;
  std::vector<int32_t> buckets_;  // first block of each, a power of two of them
  List free_;
  List kept_;  // not in use and nothing behind them, least recently used first
  int32_t held_ = 0;
  int32_t in_use_ = 0;
  uint64_t clock_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace sysone
