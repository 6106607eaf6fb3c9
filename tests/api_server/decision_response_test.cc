// SPDX-License-Identifier: Apache-2.0
#include "api_server/decision_response.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

DecisionRequest Request(const std::string& body) {
  OrProblem<DecisionRequest> parsed = ParseDecisionRequest(body, {});
  EXPECT_TRUE(std::holds_alternative<DecisionRequest>(parsed)) << body;
  return std::get<DecisionRequest>(std::move(parsed));
}

const char kBody[] = R"({"state": "s", "questions": {
  "team": {"type": "choice", "criteria": {"shipping": null, "billing": "pays \"now\"", "séc": null}},
  "spam": {"type": "noul"},
  "urgency": {"type": "score", "criteria": ["low", {"name": "hïgh", "n": 1.0}]}}})";

std::vector<Answer> Answers() {
  Answer team{QuestionType::kChoice, {0.25, 0.5, 0.25}, 1, 0.5, 0.25, 0.75, true};
  Answer spam{QuestionType::kNoul, {0.125, 0.875}, 1, 0.125, 0.75, 1e-7, false};
  Answer urgency{QuestionType::kScore, {0, 1}, 1, 1, 1, 1.0, true};
  return {team, spam, urgency};
}

ResponseMeta Meta() {
  ResponseMeta meta;
  meta.id = "decision-80bd0a693f255e1e";
  meta.created = 1764460800;
  meta.model = "Qwen/Qwen3-0.6B";
  meta.input_tokens = 181;
  meta.cached_tokens = 60;
  return meta;
}

std::vector<std::string> Keys(const Json* object) {
  std::vector<std::string> keys;
  if (object != nullptr && object->is_object())
    for (const auto& [key, value] : object->members()) keys.push_back(key);
  return keys;
}

using Names = std::vector<std::string>;

TEST(DecisionResponse, IsTheAnnouncedShapeFieldByField) {
  const Result<Json> json = Json::Parse(WriteDecisionResponse(Request(kBody), Answers(), Meta()));
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(Keys(&*json), (Names{"id", "object", "created", "model", "answers", "usage"}));
  EXPECT_EQ(json->Find("id")->string(), "decision-80bd0a693f255e1e");
  EXPECT_EQ(json->Find("object")->string(), "structured_decision");
  EXPECT_EQ(json->Find("created")->AsInt64(), 1764460800);
  EXPECT_EQ(json->Find("model")->string(), "Qwen/Qwen3-0.6B");

  const Json& answers = *json->Find("answers");
  EXPECT_EQ(Keys(&answers), (Names{"team", "spam", "urgency"}));

  const Json& team = *answers.Find("team");
  EXPECT_EQ(Keys(&team), (Names{"type", "choice", "probabilities", "confidence"}));
  EXPECT_EQ(team.Find("type")->string(), "choice");
  EXPECT_EQ(team.Find("choice")->string(), "billing");
  EXPECT_EQ(team.Find("probabilities")->Dump(),
            R"({"shipping": 0.25, "billing": 0.5, "séc": 0.25})");
  EXPECT_EQ(team.Find("confidence")->AsDouble(), 0.25);

  const Json& spam = *answers.Find("spam");
  EXPECT_EQ(Keys(&spam), (Names{"type", "noul", "probabilities", "confidence"}));
  EXPECT_EQ(spam.Find("noul")->AsDouble(), 0.125);
  EXPECT_EQ(spam.Find("probabilities")->Dump(), R"({"yes": 0.125, "no": 0.875})");
  EXPECT_EQ(spam.Find("confidence")->AsDouble(), 0.75);

  const Json& urgency = *answers.Find("urgency");
  EXPECT_EQ(Keys(&urgency), (Names{"type", "score", "legend", "probabilities", "confidence"}));
  EXPECT_EQ(urgency.Find("score")->number_text(), "1.0");
  EXPECT_EQ(urgency.Find("legend")->Dump(), R"({"0": "low", "1": {"name": "hïgh", "n": 1.0}})");
  EXPECT_EQ(urgency.Find("probabilities")->Dump(), R"({"0": 0.0, "1": 1.0})");

  EXPECT_EQ(json->Find("usage")->Dump(),
            R"({"input_tokens": 181, "output_tokens": 3, "x_cached_tokens": 60})");
}

TEST(DecisionResponse, DiagnosticsComePerQuestionWhenAskedFor) {
  ResponseMeta meta = Meta();
  meta.diagnostics = true;
  const Result<Json> json = Json::Parse(WriteDecisionResponse(Request(kBody), Answers(), meta));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->Find("diagnostics")->Dump(),
            R"({"team": {"label_mass": 0.75, "argmax_is_label": true}, )"
            R"("spam": {"label_mass": 1e-07, "argmax_is_label": false}, )"
            R"("urgency": {"label_mass": 1.0, "argmax_is_label": true}})");
}

TEST(DecisionResponse, TypesafeFieldsAreOnlyWhatThatContractKnows) {
  ResponseMeta meta = Meta();
  meta.fields = ResponseFields::kTypesafe;
  meta.diagnostics = true;
  const Result<Json> json = Json::Parse(WriteDecisionResponse(Request(kBody), Answers(), meta));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(Keys(&*json), (Names{"model", "answers", "usage", "x_diagnostics"}));
  EXPECT_EQ(json->Find("answers")->Find("spam")->Dump(), R"({"type": "noul", "noul": 0.125})");
  EXPECT_EQ(Keys(json->Find("answers")->Find("team")),
            (Names{"type", "choice", "probabilities", "confidence"}));
  EXPECT_EQ(Keys(json->Find("usage")), (Names{"input_tokens", "output_tokens", "x_cached_tokens"}));
}

TEST(DecisionResponse, DoublesAreUnroundedAndReadBackExactly) {
  const DecisionRequest request = Request(R"({"state": 1, "questions": {"q": {"type": "noul"}}})");
  const double p = 0.1 + 0.2;
  const Answer answer{QuestionType::kNoul, {p, 1 - p}, 1, p, 1.0 / 3, std::nullopt, std::nullopt};
  const Result<Json> json = Json::Parse(WriteDecisionResponse(request, {&answer, 1}, Meta()));
  ASSERT_TRUE(json.ok());
  const Json& spam = *json->Find("answers")->Find("q");
  EXPECT_EQ(spam.Find("noul")->number_text(), "0.30000000000000004");
  EXPECT_EQ(spam.Find("noul")->AsDouble(), p);
  EXPECT_EQ(spam.Find("confidence")->AsDouble(), 1.0 / 3);
}

TEST(DecisionResponse, IdsAndNamesComeBackByteForByte) {
  const DecisionRequest request = Request(
      R"({"state": 1, "questions": {"🙂 \"q\"\u0000\n": {"type": "choice", "criteria": {"환불 요청": null}}}})");
  const Answer answer{QuestionType::kChoice, {1}, 0, 1, 1, std::nullopt, std::nullopt};
  const Result<Json> json = Json::Parse(WriteDecisionResponse(request, {&answer, 1}, Meta()));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(Keys(json->Find("answers")), (Names{request.questions[0].id}));
  const Json& only = json->Find("answers")->members()[0].second;
  EXPECT_EQ(only.Find("choice")->string(), "환불 요청");
  EXPECT_EQ(Keys(only.Find("probabilities")), (Names{"환불 요청"}));
}

TEST(DecisionResponse, TheIdIsTheRequestsOwnOrSixteenHexDigits) {
  EXPECT_EQ(DecisionId("abc", 1), "decision-abc");
  EXPECT_EQ(DecisionId("", 0x80bd0a693f255e1e), "decision-80bd0a693f255e1e");
  EXPECT_EQ(DecisionId("", 10), "decision-000000000000000a");
}

}  // namespace
}  // namespace sysone
