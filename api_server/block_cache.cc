// SPDX-License-Identifier: Apache-2.0
#include "api_server/block_cache.h"

#include <utility>

namespace sysone {
namespace {

// What the list, the map and the two allocations take beside the contents, roughly.
constexpr size_t kEntryOverhead = 192;

}  // namespace

size_t BlockCache::BytesOf(const Entry& entry) {
  return entry.text.size() + entry.tokens->size() * sizeof(TokenId) + kEntryOverhead;
}

BlockCache::Tokens BlockCache::Find(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const auto found = by_text_.find(text);
  if (found == by_text_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->tokens;
}

void BlockCache::Add(std::string_view text, Tokens tokens) {
  Entry entry{std::string(text), std::move(tokens)};
  const size_t bytes = BytesOf(entry);
  if (bytes > max_bytes_ / 16) return;
  const std::lock_guard lock(mutex_);
  if (by_text_.contains(text)) return;  // another thread was faster
  entries_.push_front(std::move(entry));
  by_text_.emplace(entries_.front().text, entries_.begin());
  bytes_ += bytes;
  while (bytes_ > max_bytes_) {
    bytes_ -= BytesOf(entries_.back());
    by_text_.erase(entries_.back().text);
    entries_.pop_back();
  }
}

size_t BlockCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace sysone
