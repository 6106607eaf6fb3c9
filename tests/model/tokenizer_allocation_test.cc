// A program of its own, because it replaces operator new to count allocations.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/model/tokenizer_test_json.h"

namespace {
std::atomic<size_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace sysone {
namespace {

TEST(TokenizerAllocation, EncodingAllocatesNothingOnceItsBuffersAreLargeEnough) {
  TokenizerJson json;
  json.normalizer = R"({"type": "NFC"})";
  json.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": true})";
  json.added_tokens = R"([{"id": 261, "content": "<a>", "special": true}])";
  const auto tokenizer = Tokenizer::FromHfJson(json.Text());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::string text =
      "hello e\u0301 there<a>hello " + std::string(500, 'h') + " 123 \U0001F600";
  std::vector<TokenId> ids;
  (*tokenizer)->Encode(text, ids);
  const std::vector<TokenId> first = ids;
  ids.clear();
  const size_t before = allocations;
  (*tokenizer)->Encode(text, ids);
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(ids, first);
}

}  // namespace
}  // namespace sysone
