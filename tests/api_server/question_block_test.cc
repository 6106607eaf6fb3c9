// SPDX-License-Identifier: Apache-2.0
#include "api_server/question_block.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

const std::vector<Label> kLetters = {{"A", 1}, {"B", 2}, {"C", 3}};
const std::vector<Label> kYesNo = {{"yes", 1}, {"no", 2}};
const std::vector<Label> kDigits = {{"0", 1}, {"1", 2}};

Question Ask(QuestionType type, std::string instructions, std::vector<Option> options) {
  return {"id", type, std::move(instructions), std::move(options)};
}

TEST(QuestionBlock, AChoiceListsItsOptionsByLetterWithTheirDescriptions) {
  const Question question =
      Ask(QuestionType::kChoice, "Which team?",
          {{"billing", "billing", "", {}}, {"Shipping dept", "Shipping dept", "parcels", {}}});
  EXPECT_EQ(QuestionBlock(question, std::span(kLetters).first(2)),
            "Question: Which team?\n"
            "A: billing\n"
            "B: Shipping dept - parcels\n"
            "Answer with the letter of one option only.");
}

TEST(QuestionBlock, ANoulShowsYesAndNoBareUnlessDescribed) {
  EXPECT_EQ(
      QuestionBlock(Ask(QuestionType::kNoul, "Spam?", {{"yes", "", "", {}}, {"no", "", "", {}}}),
                    kYesNo),
      "Question: Spam?\nyes\nno\nAnswer with yes or no only.");
  EXPECT_EQ(QuestionBlock(
                Ask(QuestionType::kNoul, "Spam?", {{"yes", "", "an ad", {}}, {"no", "", "", {}}}),
                kYesNo),
            "Question: Spam?\nyes: an ad\nno\nAnswer with yes or no only.");
}

TEST(QuestionBlock, AScoreNumbersItsLevelsFromZero) {
  EXPECT_EQ(QuestionBlock(Ask(QuestionType::kScore, "Urgent?",
                              {{"0", "can wait", "", {}}, {"1", "now", "", {}}}),
                          kDigits),
            "Question: Urgent?\n0: can wait\n1: now\nAnswer with the number of one level only.");
}

TEST(QuestionBlock, WithoutInstructionsTheQuestionLineIsLeftOut) {
  EXPECT_EQ(QuestionBlock(Ask(QuestionType::kNoul, "", {{"yes", "", "", {}}, {"no", "", "", {}}}),
                          kYesNo),
            "yes\nno\nAnswer with yes or no only.");
}

TEST(QuestionBlock, EndsWithTheClosingLineOfItsType) {
  for (const auto type : {QuestionType::kChoice, QuestionType::kNoul, QuestionType::kScore}) {
    const std::string block =
        QuestionBlock(Ask(type, "Q", {{"x", "x", "", {}}}), std::span(kLetters).first(1));
    EXPECT_TRUE(block.ends_with(ClosingLine(type))) << block;
  }
}

}  // namespace
}  // namespace sysone
