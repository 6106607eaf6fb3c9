// The tokens of question texts that were asked before: clients ask the same questions about state after state. Bounded; what
// was not asked for longest is forgotten first.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer.h"

namespace sysone {

// Any thread.
class BlockCache {
 public:
  using Tokens = std::shared_ptr<const std::vector<TokenId>>;

  // `max_bytes`: of texts and tokens together.
  explicit BlockCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // nullptr when `text` is not there.
  Tokens Find(std::string_view text);
  // Keeps the tokens, unless they would take more than a sixteenth of the cache.
  void Add(std::string_view text, Tokens tokens);

  size_t bytes() const;

 private:
  struct Entry {
    std::string text;
    Tokens tokens;
  };
  static size_t BytesOf(const Entry& entry);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;                                                  // last asked first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_text_;  // views into entries_
  size_t bytes_ = 0;
};

}  // namespace sysone
