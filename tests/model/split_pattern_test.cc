// SPDX-License-Identifier: Apache-2.0
#include "model/split_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sysone {
namespace {

using Words = std::vector<std::string>;

Words Split(SplitPattern pattern, std::string_view text) {
  Words words;
  SplitWords(pattern, text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(SplitPattern, Gpt2GivesTheSpaceBeforeAWordToTheWord) {
  EXPECT_EQ(Split(SplitPattern::kGpt2, "Hi  there, 42x!"),
            (Words{"Hi", " ", " there", ",", " 42", "x", "!"}));
}

TEST(SplitPattern, Gpt2TakesLowerCaseContractionsOnly) {
  EXPECT_EQ(Split(SplitPattern::kGpt2, "it's IT'S we'll'"),
            (Words{"it", "'s", " IT", "'", "S", " we", "'ll", "'"}));
}

TEST(SplitPattern, Gpt2KeepsTrailingSpaceTogether) {
  EXPECT_EQ(Split(SplitPattern::kGpt2, "a\n\n b \n"), (Words{"a", "\n\n", " b", " \n"}));
}

TEST(SplitPattern, Gpt2CutsBeforeMarksBecauseTheyAreNoLetters) {
  EXPECT_EQ(Split(SplitPattern::kGpt2, "e\u0301t"), (Words{"e", "\u0301", "t"}));
}

TEST(SplitPattern, ModernPatternsTakeContractionsInAnyCaseAndWithTheLongS) {
  for (const auto pattern : {SplitPattern::kLlama3, SplitPattern::kQwen2, SplitPattern::kQwen35})
    EXPECT_EQ(Split(pattern, "IT'S we'Ll it'\u017f 'x"),
              (Words{"IT", "'S", " we", "'Ll", " it", "'\u017f", " '", "x"}));
}

TEST(SplitPattern, ModernPatternsLetOneSymbolLeadAWord) {
  EXPECT_EQ(Split(SplitPattern::kQwen2, "(word) ((word \tx \u00a0y"),
            (Words{"(word", ")", " ((", "word", " ", "\tx", " ", "\u00a0y"}));
}

TEST(SplitPattern, Llama3GroupsNumbersByThreeAndQwenByOne) {
  EXPECT_EQ(Split(SplitPattern::kLlama3, "12345 6\u00bd"), (Words{"123", "45", " ", "6\u00bd"}));
  EXPECT_EQ(Split(SplitPattern::kQwen2, "123 6\u00bd"), (Words{"1", "2", "3", " ", "6", "\u00bd"}));
}

TEST(SplitPattern, ModernPatternsEndAWhiteSpaceRunAtItsLastNewline) {
  EXPECT_EQ(Split(SplitPattern::kQwen2, "a \n\r\n   b"), (Words{"a", " \n\r\n", "  ", " b"}));
  EXPECT_EQ(Split(SplitPattern::kLlama3, "a   "), (Words{"a", "   "}));
}

TEST(SplitPattern, ModernPatternsPutNewlinesBehindSymbols) {
  EXPECT_EQ(Split(SplitPattern::kQwen2, "a {\n\n\tb; \n"),
            (Words{"a", " {\n\n", "\tb", ";", " \n"}));
}

TEST(SplitPattern, Qwen35KeepsMarksInsideWords) {
  EXPECT_EQ(Split(SplitPattern::kQwen35, "\u0915\u093f \u0301a!"),
            (Words{"\u0915\u093f", " \u0301a", "!"}));
  EXPECT_EQ(Split(SplitPattern::kQwen2, "\u0915\u093f"), (Words{"\u0915", "\u093f"}));
}

TEST(SplitPattern, WholePatternDoesNotCut) {
  EXPECT_EQ(Split(SplitPattern::kWhole, "a b 1"), (Words{"a b 1"}));
}

TEST(SplitPattern, EveryPatternReturnsAllBytesEvenOfInvalidUtf8) {
  const std::string text("a\xC3\x28 \xF0\x9F'\xFF\xE4\xB8", 11);
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2,
                             SplitPattern::kQwen35, SplitPattern::kWhole}) {
    std::string joined;
    for (const std::string& word : Split(pattern, text)) joined += word;
    EXPECT_EQ(joined, text);
  }
}

TEST(SplitPattern, AnUnknownExpressionHasNoPattern) {
  EXPECT_EQ(SplitPatternFromRegex(R"(\p{N}{1,3})"), std::nullopt);
  EXPECT_EQ(SplitPatternFromRegex(""), std::nullopt);
  EXPECT_EQ(SplitPatternFromRegex(
                R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
            SplitPattern::kGpt2);
}

}  // namespace
}  // namespace sysone
