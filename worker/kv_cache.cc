// SPDX-License-Identifier: Apache-2.0
#include "worker/kv_cache.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace sysone {

KvCache::KvCache(int32_t block_count, bool keep_unused)
    : keep_unused_(keep_unused),
      blocks_(static_cast<size_t>(block_count)),
      buckets_(std::bit_ceil(2 * static_cast<size_t>(block_count)), -1) {
  for (int32_t block = 0; block < block_count; ++block) InsertAfter(free_, free_.back, block);
}

KvCursor KvCache::Fork(const KvCursor& at) {
  Hold(at.block);
  return at;
}

void KvCache::Release(KvCursor& at) {
  Drop(at.block);
  at = Begin(at.salt);
}

int32_t KvCache::Walk(KvCursor& at, std::span<const TokenId> tokens) const {
  int32_t found = 0;
  for (const TokenId token : tokens) {
    if (at.block >= 0 && at.used < At(at.block).count &&
        At(at.block).tokens[static_cast<size_t>(at.used)] == token) {
      ++at.used;
    } else if (const int32_t next = Find(at, token); next >= 0) {
      at.block = next;
      at.used = 1;
    } else {
      break;
    }
    ++found;
  }
  return found;
}

int32_t KvCache::Advance(KvCursor& at, std::span<const TokenId> tokens) {
  const int32_t before = at.block;
  const int32_t found = Walk(at, tokens);
  Hold(at.block);
  Drop(before);
  return found;
}

int32_t KvCache::Append(KvCursor& at, std::span<const TokenId> tokens, std::vector<int32_t>& rows) {
  int32_t appended = 0;
  for (const TokenId token : tokens) {
    if (at.block >= 0 && at.used == At(at.block).count && at.used < kBlockRows) {
      Block& block = At(at.block);
      block.tokens[static_cast<size_t>(at.used++)] = token;
      ++block.count;
    } else {
      const int32_t next = NewBlock(at, token);
      if (next < 0) break;
      Hold(next);
      Drop(at.block);
      at.block = next;
      at.used = 1;
    }
    rows.push_back(LastRow(at));
    ++appended;
  }
  return appended;
}

void KvCache::AppendPath(const KvCursor& from, const KvCursor& to,
                         std::vector<KvSpan>& spans) const {
  const size_t first = spans.size();
  int32_t used = to.used;
  for (int32_t block = to.block; block >= 0; block = At(block).parent) {
    // From the end to the start: `spans` holds what follows this block.
    const int32_t begin = block == from.block ? from.used : 0;
    const KvSpan here{block * kBlockRows + begin, used - begin};
    used = At(block).parent_used;
    if (here.count == 0) break;
    if (spans.size() > first && here.first_row + here.count == spans.back().first_row) {
      spans.back() = {here.first_row, here.count + spans.back().count};
    } else {
      spans.push_back(here);
    }
    if (block == from.block) break;
  }
  std::reverse(spans.begin() + static_cast<ptrdiff_t>(first), spans.end());
}

int32_t KvCache::StateOf(const KvCursor& at) const {
  return at.block >= 0 && At(at.block).state_used == at.used ? at.block : -1;
}

void KvCache::SetState(const KvCursor& at) { At(at.block).state_used = at.used; }

void KvCache::Clear() {
  SYSONE_CHECK(in_use_ == 0, "%d blocks are in use", in_use_);
  while (kept_.front >= 0) Forget(kept_.front);
}

size_t KvCache::Bucket(const KvCursor& parent, TokenId first) const {
  uint64_t hash = parent.salt;
  for (const int32_t part : {parent.block, parent.used, first})
    hash = std::rotl(hash ^ static_cast<uint32_t>(part), 29) * 0x9e3779b97f4a7c15u;
  return (hash >> 32) & (buckets_.size() - 1);
}

int32_t KvCache::Find(const KvCursor& parent, TokenId first) const {
  for (int32_t b = buckets_[Bucket(parent, first)]; b >= 0; b = At(b).next_in_bucket) {
    const Block& block = At(b);
    if (block.salt == parent.salt && block.parent == parent.block &&
        block.parent_used == parent.used && block.tokens[0] == first)
      return b;
  }
  return -1;
}

int32_t KvCache::NewBlock(const KvCursor& parent, TokenId first) {
  if (free_.front < 0) {
    if (kept_.front < 0) return -1;
    Forget(kept_.front);
    ++evictions_;
  }
  // The neighbour of the block before it where that is free: fewer spans.
  const int32_t wanted = parent.block + 1;
  const bool neighbour = wanted < block_count() && At(wanted).count == 0;
  const int32_t index = neighbour ? wanted : free_.front;
  Unlink(free_, index);
  Block& block = At(index);
  block.salt = parent.salt;
  block.parent = parent.block;
  block.parent_used = parent.used;
  block.count = 1;
  block.tokens[0] = first;
  int32_t& bucket = buckets_[Bucket(parent, first)];
  block.next_in_bucket = bucket;
  bucket = index;
  if (parent.block >= 0) ++At(parent.block).children;
  ++held_;
  return index;
}

// A block that is in the list of kept ones, or in none.
void KvCache::Forget(int32_t index) {
  Block& block = At(index);
  SYSONE_CHECK(block.users == 0 && block.children == 0, "block %d is needed", index);
  const KvCursor parent{block.salt, block.parent, block.parent_used};
  int32_t* link = &buckets_[Bucket(parent, block.tokens[0])];
  while (*link != index) link = &At(*link).next_in_bucket;
  *link = block.next_in_bucket;
  if (block.stamp > 0) Unlink(kept_, index);
  block = Block{};
  InsertAfter(free_, free_.back, index);
  --held_;
  if (parent.block < 0) return;
  Block& above = At(parent.block);
  if (--above.children == 0 && above.users == 0 && keep_unused_) Keep(parent.block);
}

void KvCache::Hold(int32_t index) {
  for (; index >= 0 && At(index).users++ == 0; index = At(index).parent) {
    ++in_use_;
    if (At(index).stamp > 0 && At(index).children == 0) Unlink(kept_, index);
    At(index).stamp = 0;
  }
}

void KvCache::Drop(int32_t index) {
  while (index >= 0 && --At(index).users == 0) {
    const int32_t parent = At(index).parent;
    --in_use_;
    if (keep_unused_) {
      At(index).stamp = ++clock_;
      if (At(index).children == 0) Keep(index);
    } else {
      Forget(index);
    }
    index = parent;
  }
}

// Puts a block into its place by age. The place is near the front when the last block behind it was
// just forgotten, and at the back when it was just in use.
void KvCache::Keep(int32_t index) {
  const uint64_t stamp = At(index).stamp;
  int32_t before = -1;
  if (kept_.back >= 0 && At(kept_.back).stamp < stamp) {
    before = kept_.back;
  } else {
    for (int32_t b = kept_.front; b >= 0 && At(b).stamp < stamp; b = At(b).after) before = b;
  }
  InsertAfter(kept_, before, index);
}

void KvCache::InsertAfter(List& list, int32_t before, int32_t index) {
  Block& block = At(index);
  block.before = before;
  block.after = before < 0 ? list.front : At(before).after;
  (before < 0 ? list.front : At(before).after) = index;
  (block.after < 0 ? list.back : At(block.after).before) = index;
}

void KvCache::Unlink(List& list, int32_t index) {
  Block& block = At(index);
  (block.before < 0 ? list.front : At(block.before).after) = block.after;
  (block.after < 0 ? list.back : At(block.after).before) = block.before;
  block.before = block.after = -1;
}

}  // namespace sysone
