// SPDX-License-Identifier: Apache-2.0
#include "model/bpe.h"

#include <gtest/gtest.h>

#include <random>

#include "model/byte_level.h"

namespace sysone {
namespace {

// A vocabulary of the letters a to d, with merges drawn at random; ids follow from the order.
struct RandomVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::string, std::string>> merges;

  explicit RandomVocabulary(uint32_t seed) {
    std::mt19937 random(seed);
    for (const char c : {'a', 'b', 'c', 'd'}) tokens.emplace_back(1, c);
    while (merges.size() < 60) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 12 ||
          std::find(tokens.begin(), tokens.end(), left + right) != tokens.end())
        continue;
      merges.emplace_back(left, right);
      tokens.push_back(left + right);
    }
  }

  TokenizerSpec Spec() const {
    TokenizerSpec spec;
    for (size_t i = 0; i < tokens.size(); ++i)
      spec.vocab.emplace_back(tokens[i], static_cast<TokenId>(i));
    for (const auto& [left, right] : merges) spec.merges.emplace_back(left, right);
    return spec;
  }

  // The definition: of all neighbours that can be joined, join the best-ranked, leftmost pair.
  std::vector<TokenId> Reference(std::string_view word) const {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (;;) {
      size_t best_rank = merges.size(), best = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto pair = std::pair(parts[i], parts[i + 1]);
        const size_t rank =
            static_cast<size_t>(std::find(merges.begin(), merges.end(), pair) - merges.begin());
        if (rank < best_rank) best_rank = rank, best = i;
      }
      if (best_rank == merges.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<TokenId> ids;
    for (const std::string& part : parts)
      ids.push_back(
          static_cast<TokenId>(std::find(tokens.begin(), tokens.end(), part) - tokens.begin()));
    return ids;
  }
};

std::vector<TokenId> Encode(const BpeModel& model, std::string_view word) {
  BpeScratch scratch;
  std::vector<TokenId> ids;
  model.Encode(word, scratch, ids);
  return ids;
}

TEST(Bpe, EqualsTheDefinitionForWordsOfEveryLength) {
  std::mt19937 random(7);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const RandomVocabulary vocabulary(seed);
    const auto model = BpeModel::Build(vocabulary.Spec());
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (size_t length = 1; length <= 80; ++length) {
      std::string word;
      const uint32_t letters = 1 + random() % 4;
      for (size_t i = 0; i < length; ++i) word += "abcd"[random() % letters];
      EXPECT_EQ(Encode(model.value(), word), vocabulary.Reference(word)) << word;
    }
  }
}

TEST(Bpe, AMillionEqualLettersTakeFarLessThanQuadraticTime) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"aa", 1}, {"aaaa", 2}};
  spec.merges = {{"a", "a"}, {"aa", "aa"}};
  const auto model = BpeModel::Build(spec);
  ASSERT_TRUE(model.ok());
  // Quadratic work would be 10^12 steps: the test's own time limit is the check.
  const std::vector<TokenId> ids = Encode(model.value(), std::string(1'000'003, 'a'));
  ASSERT_EQ(ids.size(), 250'002u);
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(ids[250'000], 1);
  EXPECT_EQ(ids[250'001], 0);
}

TEST(Bpe, IgnoringMergesTakesAWordOfTheVocabularyWhole) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}};
  spec.merges = {{"a", "b"}};
  const auto by_merges = BpeModel::Build(spec);
  spec.ignore_merges = true;
  const auto whole = BpeModel::Build(spec);
  ASSERT_TRUE(by_merges.ok() && whole.ok());
  EXPECT_EQ(Encode(*by_merges, "abc"), (std::vector<TokenId>{3, 2}));
  EXPECT_EQ(Encode(*whole, "abc"), (std::vector<TokenId>{4}));
  EXPECT_EQ(Encode(*whole, "abcc"), (std::vector<TokenId>{3, 2, 2}));
}

TEST(Bpe, BytesThatAreNoTokensAreLeftOutOrReplaced) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}};
  spec.merges = {{"a", "b"}};
  const auto dropping = BpeModel::Build(spec);
  spec.unk_token = "<unk>";
  const auto each = BpeModel::Build(spec);
  spec.fuse_unk = true;
  const auto fused = BpeModel::Build(spec);
  ASSERT_TRUE(dropping.ok() && each.ok() && fused.ok());
  EXPECT_EQ(Encode(*dropping, "axxb"), (std::vector<TokenId>{2}));
  EXPECT_EQ(Encode(*each, "axxb"), (std::vector<TokenId>{0, 3, 3, 1}));
  EXPECT_EQ(Encode(*fused, "axxb"), (std::vector<TokenId>{0, 3, 1}));
}

TEST(Bpe, ByteFallbackSpellsTheCharacterThatStandsForTheByte) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"<0xC4>", 1}, {"<0xA0>", 2}};
  spec.byte_fallback = true;
  const auto model = BpeModel::Build(spec);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(Encode(*model, "a "), (std::vector<TokenId>{0, 1, 2}));  // a space is spelt U+0120
  EXPECT_EQ(Encode(*model, "a\n"), (std::vector<TokenId>{0}));       // U+010A: C4 8A, not all there
}

TEST(Bpe, AMergeOutsideTheVocabularyIsCorrupt) {
  TokenizerSpec spec;
  spec.vocab = {{"a", 0}, {"b", 1}};
  spec.merges = {{"a", "b"}};
  EXPECT_EQ(BpeModel::Build(spec).status().code(), Code::kCorrupt);
  spec.vocab.emplace_back("ab", -1);
  EXPECT_EQ(BpeModel::Build(spec).status().code(), Code::kUnsupported);
  spec.vocab.back().second = 2;
  EXPECT_TRUE(BpeModel::Build(spec).ok());
  spec.unk_token = "<unk>";
  EXPECT_EQ(BpeModel::Build(spec).status().code(), Code::kCorrupt);
}

TEST(Bpe, TokensAreFoundByTheirBytesWhateverTheirLength) {
  TokenizerSpec spec;
  std::vector<std::string> tokens;
  for (size_t length = 1; length <= 40; ++length)
    tokens.push_back(std::string(length - 1, 'x') + "y");
  for (size_t i = 0; i < tokens.size(); ++i)
    spec.vocab.emplace_back(tokens[i], static_cast<TokenId>(i));
  const auto model = BpeModel::Build(spec);
  ASSERT_TRUE(model.ok());
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_EQ(model->Find(tokens[i]), static_cast<TokenId>(i));
  EXPECT_EQ(model->Find(""), std::nullopt);
  EXPECT_EQ(model->Find("z"), std::nullopt);
  EXPECT_EQ(model->Find(std::string(41, 'y')), std::nullopt);
}

TEST(ByteLevel, SpellingsAreReadBackForAllBytesAndRefusedOtherwise) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    ASSERT_TRUE(BytesFromSpelling(SpellingOfByte(static_cast<uint8_t>(byte)), bytes));
    EXPECT_EQ(bytes, std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(SpellingOfByte(' '), "\u0120");
  EXPECT_FALSE(BytesFromSpelling(" ", bytes));
  EXPECT_FALSE(BytesFromSpelling("\u0144", bytes));
  EXPECT_FALSE(BytesFromSpelling("\u4e2d", bytes));
}

}  // namespace
}  // namespace sysone
