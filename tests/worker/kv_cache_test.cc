// SPDX-License-Identifier: Apache-2.0
#include "worker/kv_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace sysone {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int32_t kRows = KvCache::kBlockRows;

Tokens Counting(TokenId first, int32_t count) {
  Tokens tokens;
  for (TokenId t = first; t < first + count; ++t) tokens.push_back(t);
  return tokens;
}

Tokens Joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Everything of `tokens` that is not held gets rows.
std::vector<int32_t> Put(KvCache& cache, KvCursor& at, const Tokens& tokens) {
  std::vector<int32_t> rows;
  const auto found = static_cast<size_t>(cache.Advance(at, tokens));
  cache.Append(at, std::span(tokens).subspan(found), rows);
  return rows;
}

int32_t Found(const KvCache& cache, const Tokens& tokens, uint64_t salt = 0) {
  KvCursor at = cache.Begin(salt);
  return cache.Walk(at, tokens);
}

std::vector<int32_t> PathRows(const KvCache& cache, const KvCursor& from, const KvCursor& to) {
  std::vector<KvSpan> spans;
  cache.AppendPath(from, to, spans);
  std::vector<int32_t> rows;
  for (const KvSpan& span : spans)
    for (int32_t i = 0; i < span.count; ++i) rows.push_back(span.first_row + i);
  return rows;
}

TEST(KvCache, FindsWhatWasPutDownToTheSingleToken) {
  KvCache cache(16, true);
  const Tokens tokens = Counting(100, 3 * kRows - 2);
  KvCursor at = cache.Begin(0);
  const std::vector<int32_t> rows = Put(cache, at, tokens);
  EXPECT_EQ(rows.size(), tokens.size());
  EXPECT_EQ(PathRows(cache, cache.Begin(0), at), rows);
  cache.Release(at);
  EXPECT_EQ(cache.blocks_in_use(), 0);
  EXPECT_EQ(cache.blocks_held(), 3);
  for (size_t keep = 0; keep <= tokens.size(); ++keep) {
    Tokens other(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(keep));
    other.push_back(7);
    EXPECT_EQ(Found(cache, other), static_cast<int32_t>(keep));
  }
}

TEST(KvCache, ABranchHangsBehindAnyTokenAndSeesTheRowsBeforeIt) {
  KvCache cache(16, true);
  const Tokens state = Counting(100, kRows + 3);
  KvCursor first = cache.Begin(0);
  const std::vector<int32_t> state_rows = Put(cache, first, state);
  KvCursor second = cache.Fork(first);
  const KvCursor fork = first;
  const std::vector<int32_t> first_rows = Put(cache, first, Counting(1, 4));
  const std::vector<int32_t> second_rows = Put(cache, second, Counting(51, 4));
  EXPECT_EQ(first_rows.size(), 4u);
  EXPECT_EQ(second_rows.size(), 4u);
  EXPECT_EQ(PathRows(cache, cache.Begin(0), fork), state_rows);
  EXPECT_EQ(PathRows(cache, fork, first), first_rows);
  EXPECT_EQ(PathRows(cache, fork, second), second_rows);
  EXPECT_EQ(PathRows(cache, fork, fork), std::vector<int32_t>{});
  std::vector<int32_t> whole = state_rows;
  whole.insert(whole.end(), second_rows.begin(), second_rows.end());
  EXPECT_EQ(PathRows(cache, cache.Begin(0), second), whole);
  EXPECT_EQ(Found(cache, Joined(state, Counting(51, 9))), kRows + 3 + 4);
  cache.Release(first);
  cache.Release(second);
}

TEST(KvCache, NeighboursAreOneSpan) {
  KvCache cache(16, true);
  KvCursor at = cache.Begin(0);
  Put(cache, at, Counting(1, 5 * kRows + 1));
  std::vector<KvSpan> spans;
  cache.AppendPath(cache.Begin(0), at, spans);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].count, 5 * kRows + 1);
  cache.Release(at);
}

TEST(KvCache, SaltsDoNotMeet) {
  KvCache cache(16, true);
  KvCursor at = cache.Begin(1);
  Put(cache, at, Counting(1, 20));
  EXPECT_EQ(Found(cache, Counting(1, 20), 1), 20);
  EXPECT_EQ(Found(cache, Counting(1, 20), 2), 0);
  EXPECT_EQ(Found(cache, Counting(1, 20), 0), 0);
  cache.Release(at);
}

TEST(KvCache, ForgetsTheLeastRecentlyUsedAndTheEndsOfPathsFirst) {
  KvCache cache(4, true);
  const Tokens a = Counting(100, 2 * kRows), b = Counting(200, kRows), c = Counting(300, kRows);
  for (const Tokens* tokens : {&a, &b, &c}) {
    KvCursor at = cache.Begin(0);
    Put(cache, at, *tokens);
    cache.Release(at);
  }
  KvCursor again = cache.Begin(0);
  EXPECT_EQ(cache.Advance(again, b), kRows);  // b is now the youngest
  cache.Release(again);
  KvCursor at = cache.Begin(0);
  Put(cache, at, Counting(400, kRows));
  EXPECT_EQ(cache.evictions(), 1u);
  EXPECT_EQ(Found(cache, a), kRows) << "only the end of the oldest path is gone";
  Put(cache, at, Counting(500, kRows));
  EXPECT_EQ(Found(cache, a), 0);
  EXPECT_EQ(Found(cache, c), kRows);
  Put(cache, at, Counting(600, kRows));
  EXPECT_EQ(Found(cache, c), 0);
  EXPECT_EQ(Found(cache, b), kRows);
  cache.Release(at);
}

TEST(KvCache, WhatIsInUseStaysAndAnAppendStopsWhereNothingElseIsLeft) {
  KvCache cache(3, true);
  KvCursor held = cache.Begin(0);
  Put(cache, held, Counting(100, 2 * kRows));
  KvCursor at = cache.Begin(0);
  EXPECT_EQ(Put(cache, at, Counting(200, 3 * kRows)).size(), static_cast<size_t>(kRows));
  EXPECT_EQ(cache.blocks_in_use(), 3);
  EXPECT_EQ(Found(cache, Counting(100, 2 * kRows)), 2 * kRows);
  cache.Release(held);
  EXPECT_EQ(Put(cache, at, Counting(300, 2 * kRows)).size(), static_cast<size_t>(2 * kRows));
  EXPECT_EQ(Found(cache, Counting(100, 2 * kRows)), 0);
  cache.Release(at);
}

TEST(KvCache, KeepsOneStateABlock) {
  KvCache cache(4, true);
  KvCursor at = cache.Begin(0);
  Put(cache, at, Counting(1, 3));
  EXPECT_EQ(cache.StateOf(at), -1);
  cache.SetState(at);
  EXPECT_EQ(cache.StateOf(at), at.block);
  Put(cache, at, Counting(4, 2));
  EXPECT_EQ(cache.StateOf(at), -1) << "the state behind token 3 is not that behind token 5";
  KvCursor third = cache.Begin(0);
  cache.Walk(third, Counting(1, 3));
  EXPECT_EQ(cache.StateOf(third), at.block);
  cache.SetState(at);
  EXPECT_EQ(cache.StateOf(third), -1);
  EXPECT_EQ(cache.StateOf(cache.Begin(0)), -1);
  cache.Release(at);
  cache.Clear();
  EXPECT_EQ(cache.blocks_held(), 0);
  EXPECT_EQ(Found(cache, Counting(1, 3)), 0);
}

TEST(KvCache, ForgetsAtOnceWhatNobodyUsesWhenNothingIsToBeKept) {
  KvCache cache(8, false);
  KvCursor at = cache.Begin(0);
  Put(cache, at, Counting(1, 12));
  KvCursor other = cache.Fork(at);
  Put(cache, other, Counting(50, 12));
  cache.Release(at);
  EXPECT_EQ(Found(cache, Joined(Counting(1, 12), Counting(50, 12))), 24);
  cache.Release(other);
  EXPECT_EQ(cache.blocks_held(), 0);
}

// Random paths that share beginnings, holders that come and go: what is found was put, its rows are
// those it was given, and what is held is never lost.
TEST(KvCache, HoldsItsPromisesInRandomUse) {
  for (const bool keep : {true, false}) {
    std::mt19937 random(3);
    KvCache cache(24, keep);
    std::map<int32_t, std::pair<Tokens, TokenId>> row_holds;  // row: the path before it, its token
    struct Holder {
      KvCursor at;
      Tokens tokens;
    };
    std::vector<Holder> holders;
    for (int step = 0; step < 20000; ++step) {
      if (holders.size() > 4 || (random() % 3 == 0 && !holders.empty())) {
        const size_t which = random() % holders.size();
        ASSERT_EQ(PathRows(cache, cache.Begin(0), holders[which].at).size(),
                  holders[which].tokens.size());
        cache.Release(holders[which].at);
        holders.erase(holders.begin() + static_cast<ptrdiff_t>(which));
      }
      Holder holder{cache.Begin(0), {}};
      if (random() % 2 == 0 && !holders.empty()) {
        const Holder& other = holders[random() % holders.size()];
        holder = {cache.Fork(other.at), other.tokens};
      }
      Tokens wanted;
      for (size_t i = random() % 20; i > 0; --i)
        wanted.push_back(static_cast<TokenId>(random() % 2));
      const auto found = static_cast<size_t>(cache.Advance(holder.at, wanted));
      std::vector<int32_t> rows;
      const auto added =
          static_cast<size_t>(cache.Append(holder.at, std::span(wanted).subspan(found), rows));
      ASSERT_EQ(rows.size(), added);
      for (size_t i = 0; i < found + added; ++i) {
        if (i >= found) row_holds[rows[i - found]] = {holder.tokens, wanted[i]};
        holder.tokens.push_back(wanted[i]);
      }
      const std::vector<int32_t> path = PathRows(cache, cache.Begin(0), holder.at);
      ASSERT_EQ(path.size(), holder.tokens.size());
      for (size_t i = 0; i < path.size(); ++i) {
        const auto& [before, token] = row_holds.at(path[i]);
        ASSERT_EQ(before,
                  Tokens(holder.tokens.begin(), holder.tokens.begin() + static_cast<ptrdiff_t>(i)));
        ASSERT_EQ(token, holder.tokens[i]);
      }
      holders.push_back(holder);
    }
    for (Holder& holder : holders) cache.Release(holder.at);
    EXPECT_EQ(cache.blocks_in_use(), 0);
    EXPECT_EQ(cache.blocks_held() > 0, keep);
    cache.Clear();
    EXPECT_EQ(cache.blocks_held(), 0);
    EXPECT_EQ(cache.evictions() > 100, keep);
  }
}

}  // namespace
}  // namespace sysone
