// SPDX-License-Identifier: Apache-2.0
#include "api_server/labels.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/api_server/fake_tokenizer.h"

namespace sysone {
namespace {

PromptEnds Ends(const std::string& tail = "<|im_end|>\n<|im_start|>assistant\n") {
  return {"option only." + tail, "or no only." + tail, "level only." + tail};
}

std::vector<std::string> With(std::vector<std::string> words) {
  std::vector<std::string> all = FakeTokenizer::ChatMlWords();
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

TEST(LabelSet, GivesLettersYesNoAndDigitsInOptionOrder) {
  const FakeTokenizer tokenizer(With({}));
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_TRUE(set.ok()) << set.status().message();
  const auto letters = set->For(QuestionType::kChoice, 26);
  ASSERT_EQ(letters.size(), 26u);
  for (size_t i = 0; i < 26; ++i) {
    EXPECT_EQ(letters[i].text, std::string(1, static_cast<char>('A' + i)));
    EXPECT_EQ(letters[i].id, static_cast<TokenId>('A' + i));
  }
  const auto noul = set->For(QuestionType::kNoul, 2);
  ASSERT_EQ(noul.size(), 2u);
  EXPECT_EQ(noul[0].text, "yes");
  EXPECT_EQ(noul[0].id, tokenizer.TokenToId("yes"));
  EXPECT_EQ(noul[1].text, "no");
  const auto digits = set->For(QuestionType::kScore, 10);
  ASSERT_EQ(digits.size(), 10u);
  EXPECT_EQ(digits[9].text, "9");
  EXPECT_EQ(set->For(QuestionType::kScore, 4).size(), 4u);
}

TEST(LabelSet, ThePoolHoldsOnlySingleDistinctTokensAndIsAlwaysTheSame) {
  // Single bytes give 52; of the pairs only these exist, and the tokenizer's "no".
  const FakeTokenizer tokenizer(With({"07", "AB", "ZZ", "qq", "Aa", "B2"}));
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->max_options(), 59u);
  const auto pool = set->For(QuestionType::kChoice, 59);
  ASSERT_EQ(pool.size(), 59u);
  std::set<TokenId> ids;
  for (const Label& label : pool) ids.insert(label.id);
  EXPECT_EQ(ids.size(), 59u);
  EXPECT_EQ(pool[25].text, "Z");
  EXPECT_EQ(pool[26].text, "a");
  EXPECT_EQ(pool[51].text, "z");
  const std::vector<std::string> rest = {"07", "AB", "ZZ", "no", "qq", "Aa", "B2"};
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(pool[52 + i].text, rest[i]);

  const Result<LabelSet> again = LabelSet::Resolve(tokenizer, Ends());
  for (size_t i = 0; i < 59; ++i)
    EXPECT_EQ(again->For(QuestionType::kChoice, 59)[i].text, pool[i].text);
}

TEST(LabelSet, AListLongerThanThePoolHasNoLabels) {
  const FakeTokenizer tokenizer(With({}));
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->For(QuestionType::kChoice, 53).size(), 53u);  // A–Z, a–z and "no"
  EXPECT_TRUE(set->For(QuestionType::kChoice, 54).empty());
}

TEST(LabelSet, ThePoolStopsAtTheMostOptionsAChoiceMayHave) {
  std::vector<std::string> words;
  for (char a = 'A'; a <= 'Z'; ++a)
    for (char b = 'A'; b <= 'Z'; ++b) words.push_back({a, b});
  const FakeTokenizer tokenizer(With(words));
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->max_options(), 255u);
}

TEST(LabelSet, AWordOfTwoTokensIsRefusedAtStartWithItsName) {
  const FakeTokenizer tokenizer({"<|im_start|>", "<|im_end|>", "yes"});  // "no" is two bytes
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.status().code(), Code::kUnsupported);
  EXPECT_NE(set.status().message().find("'no' is 2 tokens"), std::string::npos)
      << set.status().message();
}

TEST(LabelSet, ALabelThatMergesWithThePromptIsRefusedAtStart) {
  const FakeTokenizer tokenizer(With({"\nQ"}));  // the generation prompt ends in a newline
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_FALSE(set.ok());
  EXPECT_NE(set.status().message().find("label 'Q' merges"), std::string::npos)
      << set.status().message();
}

TEST(LabelSet, APoolLabelThatMergesWithThePromptIsOnlyLeftOut) {
  const FakeTokenizer tokenizer(With({"\nq"}));
  const Result<LabelSet> set = LabelSet::Resolve(tokenizer, Ends());
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->max_options(), 52u);
}

}  // namespace
}  // namespace sysone
