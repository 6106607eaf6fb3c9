// SPDX-License-Identifier: Apache-2.0
#include "api_server/scoring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace sysone {
namespace {

std::vector<TokenId> Ids(size_t count) {
  std::vector<TokenId> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>(10 + i);
  return ids;
}

Result<Answer> Score(QuestionType type, const std::vector<float>& logits,
                     std::optional<FullHead> head = std::nullopt,
                     ConfidenceRule rule = ConfidenceRule::kTypesafe) {
  const std::vector<TokenId> ids = Ids(logits.size());
  return ScoreLabels(type, {logits, ids, head}, rule);
}

// The textbook formula, in the widest type of the machine.
std::vector<long double> ReferenceSoftmax(const std::vector<float>& logits) {
  long double sum = 0, top = -std::numeric_limits<long double>::infinity();
  for (const float logit : logits) top = std::max(top, static_cast<long double>(logit));
  std::vector<long double> p;
  for (const float logit : logits) sum += p.emplace_back(std::exp(logit - top));
  for (auto& value : p) value /= sum;
  return p;
}

// Logits that give these probabilities.
std::vector<float> LogitsOf(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double value : p) logits.push_back(static_cast<float>(std::log(value)));
  return logits;
}

TEST(Scoring, ProbabilitiesMatchALongDoubleSoftmaxOverEveryCountOfLabels) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> spread(-40, 40);
  for (size_t count = 1; count <= 255; ++count) {
    std::vector<float> logits(count);
    for (float& logit : logits) logit = spread(random);
    const Result<Answer> answer = Score(QuestionType::kChoice, logits);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    const auto reference = ReferenceSoftmax(logits);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      // exp of an argument up to 80 in size is off by 1 ulp, the sum of n ≤ 255 terms by n/2 ulps, the quotient by 1:
      // (255 / 2 + 3) · 2⁻⁵³ relative.
      const double bound = 131 * std::numeric_limits<double>::epsilon() / 2;
      const double expected = static_cast<double>(reference[i]);
      ASSERT_LE(std::abs(answer->probabilities[i] - expected), bound * expected)
          << count << " " << i;
      sum += answer->probabilities[i];
    }
    EXPECT_NEAR(sum, 1, 255 * std::numeric_limits<double>::epsilon());
  }
}

TEST(Scoring, HugeLogitsNeitherOverflowNorVanish) {
  const Result<Answer> answer = Score(QuestionType::kNoul, {3e38f, -3e38f});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->probabilities, (std::vector<double>{1, 0}));
  EXPECT_EQ(answer->confidence, 1);
}

TEST(Scoring, AShiftOfAllLogitsChangesNothing) {
  const Result<Answer> a = Score(QuestionType::kChoice, {1, 2, 4});
  const Result<Answer> b = Score(QuestionType::kChoice, {-15, -14, -12});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->probabilities, b->probabilities);
}

TEST(Scoring, OfEqualOptionsTheFirstWins) {
  const Result<Answer> answer = Score(QuestionType::kChoice, {0, 2, 2, 1});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->winner, 1u);
}

TEST(Scoring, ANoulIsTheProbabilityOfYes) {
  const Result<Answer> answer = Score(QuestionType::kNoul, LogitsOf({0.2, 0.8}));
  ASSERT_TRUE(answer.ok());
  EXPECT_NEAR(answer->value, 0.2, 1e-7);  // float32 logits near 2: an ulp of 1.2e-7 times p(1 − p)
  EXPECT_EQ(answer->value, answer->probabilities[0]);
  EXPECT_NEAR(answer->confidence, 0.6, 2e-7);
}

TEST(Scoring, AScoreIsTheExpectedLevel) {
  const Result<Answer> answer = Score(QuestionType::kScore, LogitsOf({0.1, 0.2, 0.7}));
  ASSERT_TRUE(answer.ok());
  EXPECT_NEAR(answer->value, 1.6, 1e-6);
  EXPECT_EQ(answer->winner, 2u);
  // mode 2: spread 0.1·2 + 0.2·1 = 0.4; uniform spread (1 + 0 + 1) / 3; 1 − 0.4 · 1.5
  EXPECT_NEAR(answer->confidence, 0.4, 1e-6);
}

TEST(Scoring, ChoiceConfidenceIsZeroForTheUniformAnswerAndOneForACertainOne) {
  for (const size_t count : {2u, 3u, 7u, 255u}) {
    const Result<Answer> uniform = Score(QuestionType::kChoice, std::vector<float>(count, 1.f));
    ASSERT_TRUE(uniform.ok());
    EXPECT_GE(uniform->confidence, 0);
    EXPECT_LE(uniform->confidence, 1e-14);
    std::vector<float> certain(count, -1000.f);
    certain[count - 1] = 0;
    const Result<Answer> sure = Score(QuestionType::kChoice, certain);
    ASSERT_TRUE(sure.ok());
    EXPECT_EQ(sure->confidence, 1);
  }
}

TEST(Scoring, TheOnlyOptionIsCertain) {
  const Result<Answer> answer = Score(QuestionType::kChoice, {-7});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->probabilities, std::vector<double>{1});
  EXPECT_EQ(answer->confidence, 1);
}

TEST(Scoring, ScoreConfidenceIsNeverNegative) {
  const Result<Answer> ends = Score(QuestionType::kScore, LogitsOf({0.5, 1e-9, 1e-9, 0.499999998}));
  ASSERT_TRUE(ends.ok());
  EXPECT_EQ(ends->confidence, 0);
}

TEST(Scoring, LabelMassIsTheLabelsShareOfTheWholeVocabulary) {
  const std::vector<float> logits = {std::log(3.f), std::log(1.f)};
  const Result<Answer> answer = Score(QuestionType::kNoul, logits, FullHead{std::log(8.f), 11});
  ASSERT_TRUE(answer.ok());
  EXPECT_NEAR(*answer->label_mass, 0.5, 1e-6);
  EXPECT_TRUE(*answer->argmax_is_label);
}

TEST(Scoring, AnArgmaxOutsideTheLabelsIsSaidSo) {
  const Result<Answer> answer = Score(QuestionType::kNoul, {0, 0}, FullHead{5, 99});
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(*answer->argmax_is_label);
}

TEST(Scoring, RoundingNeverLiftsTheLabelMassAboveOne) {
  const float lse = std::nextafter(0.f, -1.f) - 1e-4f;
  const Result<Answer> answer = Score(QuestionType::kChoice, {0}, FullHead{lse, 10});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(*answer->label_mass, 1);
}

TEST(Scoring, VllmConfidenceIsTheWinnersProbabilityTimesTheLabelMass) {
  for (const auto type : {QuestionType::kChoice, QuestionType::kNoul, QuestionType::kScore}) {
    const Result<Answer> answer = Score(type, {std::log(3.f), std::log(1.f)},
                                        FullHead{std::log(8.f), 10}, ConfidenceRule::kVllm);
    ASSERT_TRUE(answer.ok());
    EXPECT_NEAR(answer->confidence, 0.75 * 0.5, 1e-6);
  }
}

TEST(Scoring, NumbersThatAreNoNumbersAreOurFaultAndNeverAnAnswer) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -inf}) {
    EXPECT_EQ(Score(QuestionType::kChoice, {0, bad}).status().code(), Code::kInternal);
    EXPECT_EQ(Score(QuestionType::kChoice, {0, 1}, FullHead{bad, 1}).status().code(),
              Code::kInternal);
  }
}

TEST(Scoring, ALogSumExpBelowTheLabelsIsOurFault) {
  EXPECT_EQ(Score(QuestionType::kChoice, {0, 1}, FullHead{-3, 1}).status().code(), Code::kInternal);
}

}  // namespace
}  // namespace sysone
