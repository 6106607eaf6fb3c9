// SPDX-License-Identifier: Apache-2.0
#include "api_server/decision_request.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sysone {
namespace {

OrProblem<DecisionRequest> Parse(const std::string& body) { return ParseDecisionRequest(body, {}); }

DecisionRequest Good(const std::string& body) {
  OrProblem<DecisionRequest> parsed = Parse(body);
  if (auto* problem = std::get_if<RequestProblem>(&parsed)) {
    ADD_FAILURE() << body << "\n" << problem->status.message();
    return {};
  }
  return std::move(std::get<DecisionRequest>(parsed));
}

RequestProblem Bad(const std::string& body) {
  OrProblem<DecisionRequest> parsed = Parse(body);
  if (std::holds_alternative<DecisionRequest>(parsed)) {
    ADD_FAILURE() << "accepted: " << body;
    return {};
  }
  return std::move(std::get<RequestProblem>(parsed));
}

// Loc as JSON text, so that a table can hold it.
std::string LocText(const ValidationIssue& issue) {
  std::vector<Json> parts;
  for (const auto& part : issue.loc) {
    if (const auto* key = std::get_if<std::string>(&part)) {
      parts.push_back(Json::String(*key));
    } else {
      parts.push_back(Json::Number(std::to_string(std::get<int64_t>(part))));
    }
  }
  return Json::Array(std::move(parts)).Dump();
}

std::string Asking(const std::string& question) {
  return R"({"state": "s", "questions": {"q": )" + question + "}}";
}

std::string With(const std::string& fields) {
  return R"({"state": "s", "questions": {"q": {"type": "noul"}}, )" + fields + "}";
}

TEST(DecisionRequest, ReadsTheAnnouncedExample) {
  const DecisionRequest request = Good(R"({
    "model": "Qwen/Qwen3-0.6B",
    "state": {"team": "billing", "language": "French"},
    "questions": {
      "team": {"type": "choice", "instructions": "Which team does the message name?",
               "criteria": {"billing": null, "shipping": null, "security": null}},
      "lang": {"type": "choice", "instructions": "Which language does the message name?",
               "criteria": {"English": null, "French": null}}},
    "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(request.model, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(request.state.Dump(), R"({"team": "billing", "language": "French"})");
  ASSERT_EQ(request.questions.size(), 2u);
  EXPECT_EQ(request.questions[0].id, "team");
  EXPECT_EQ(request.questions[0].type, QuestionType::kChoice);
  EXPECT_EQ(request.questions[0].instructions, "Which team does the message name?");
  ASSERT_EQ(request.questions[0].options.size(), 3u);
  EXPECT_EQ(request.questions[0].options[1].name, "shipping");
  EXPECT_EQ(request.questions[0].options[1].text, "shipping");
  EXPECT_EQ(request.questions[0].options[1].description, "");
  EXPECT_EQ(request.questions[1].id, "lang");
  EXPECT_EQ(request.chat_template_kwargs.Dump(), R"({"enable_thinking": false})");
  EXPECT_FALSE(request.diagnostics.has_value());
}

TEST(DecisionRequest, StateMayBeAnyJsonValue) {
  for (const std::string state :
       {R"("text")", R"({"a": [1, {"b": null}]})", "[]", "1.0", "true", "null", R"("")"}) {
    const DecisionRequest request =
        Good(R"({"state": )" + state + R"(, "questions": {"q": {"type": "noul"}}})");
    EXPECT_EQ(request.state.Dump(), state);
  }
}

TEST(DecisionRequest, StructuredTextIsRenderedAsPythonWritesJson) {
  const DecisionRequest request = Good(Asking(
      R"({"type":"choice","instructions":{"task":"wähle","n":[1.0,1e400,-0,true,null]},"criteria":{"b":["x","😀"],"a":{"z":1,"y":"\u00e9\n"},"c":""}})"));
  const Question& question = request.questions[0];
  EXPECT_EQ(question.instructions, R"({"task": "wähle", "n": [1.0, 1e400, -0, true, null]})");
  ASSERT_EQ(question.options.size(), 3u);
  EXPECT_EQ(question.options[0].name, "b");
  EXPECT_EQ(question.options[0].description, R"(["x", "😀"])");
  EXPECT_EQ(question.options[1].description, "{\"z\": 1, \"y\": \"é\\n\"}");
  EXPECT_EQ(question.options[2].description, "");
}

TEST(DecisionRequest, InstructionsOfAQuestionMayBeAbsentOrNull) {
  EXPECT_EQ(Good(Asking(R"({"type": "noul"})")).questions[0].instructions, "");
  EXPECT_EQ(Good(Asking(R"({"type": "noul", "instructions": null})")).questions[0].instructions,
            "");
  EXPECT_EQ(Good(Asking(R"({"type": "noul", "instructions": []})")).questions[0].instructions,
            "[]");
}

TEST(DecisionRequest, NoulCriteriaMayBeAbsentNullOneSidedOrBoth) {
  struct Case {
    std::string criteria, yes, no;
  };
  for (const Case& c :
       {Case{"null", "", ""}, Case{"{}", "", ""}, Case{R"({"true": "t"})", "t", ""},
        Case{R"({"false": {"k": 1}})", "", R"({"k": 1})"},
        Case{R"({"false": "f", "true": "t"})", "t", "f"}, Case{R"({"true": null})", "", ""}}) {
    const Question question =
        Good(Asking(R"({"type": "noul", "criteria": )" + c.criteria + "}")).questions[0];
    ASSERT_EQ(question.options.size(), 2u);
    EXPECT_EQ(question.options[0].name, "yes");
    EXPECT_EQ(question.options[1].name, "no");
    EXPECT_EQ(question.options[0].description, c.yes) << c.criteria;
    EXPECT_EQ(question.options[1].description, c.no) << c.criteria;
  }
}

TEST(DecisionRequest, ScoreLevelsKeepTheirTextAndWhatWasSent) {
  const Question question =
      Good(Asking(R"({"type": "score", "criteria": ["low", {"name":"high"}, ["x"]]})"))
          .questions[0];
  ASSERT_EQ(question.options.size(), 3u);
  EXPECT_EQ(question.options[0].name, "0");
  EXPECT_EQ(question.options[0].text, "low");
  EXPECT_EQ(question.options[1].text, R"({"name": "high"})");
  EXPECT_TRUE(question.options[1].as_sent.is_object());
  EXPECT_EQ(question.options[2].name, "2");
}

TEST(DecisionRequest, OptionalFieldsMayBeNull) {
  const DecisionRequest request = Good(With(
      R"("model": null, "instructions": null, "chat_template_kwargs": null, "images": null, "audio": null, "videos": null, "assets": null, "cache_salt": null, "priority": null, "request_id": null, "diagnostics": null)"));
  EXPECT_EQ(request.model, "");
  EXPECT_EQ(request.priority, 0);
  EXPECT_TRUE(request.chat_template_kwargs.is_null());
}

TEST(DecisionRequest, OptionalFieldsAreRead) {
  const DecisionRequest request = Good(With(
      R"("model": "", "instructions": "Be strict.", "images": [], "audio": [], "videos": [], "assets": {}, "cache_salt": "tenant-ü", "priority": -9223372036854775808, "request_id": "abc-1", "diagnostics": true)"));
  EXPECT_EQ(request.model, "");
  EXPECT_EQ(request.instructions, "Be strict.");
  EXPECT_EQ(request.cache_salt, "tenant-ü");
  EXPECT_EQ(request.priority, INT64_MIN);
  EXPECT_EQ(request.request_id, "abc-1");
  EXPECT_EQ(request.diagnostics, true);
}

TEST(DecisionRequest, UnknownFieldsOfTheBodyAreIgnored) {
  EXPECT_EQ(
      Good(With(R"("seed": 7, "x_trace_id": {"a": 1}, "temperature": "hot")")).questions.size(),
      1u);
}

TEST(DecisionRequest, OfDuplicateKeysTheLastWins) {
  const DecisionRequest request = Good(
      R"({"state": 1, "state": 2, "questions": {"q": {"type": "score"}, "r": {"type": "noul"}, "q": {"type": "noul", "type": "noul"}}})");
  EXPECT_EQ(request.state.Dump(), "2");
  ASSERT_EQ(request.questions.size(), 2u);
  EXPECT_EQ(request.questions[0].id, "q");
  EXPECT_EQ(request.questions[0].type, QuestionType::kNoul);
}

TEST(DecisionRequest, AnyNonEmptyStringIsAQuestionId) {
  const DecisionRequest request = Good(
      R"({"state": "s", "questions": {"a b": {"type": "noul"}, "🙂.x/\"": {"type": "noul"}, "\u0000": {"type": "noul"}}})");
  ASSERT_EQ(request.questions.size(), 3u);
  EXPECT_EQ(request.questions[1].id, "🙂.x/\"");
  EXPECT_EQ(request.questions[2].id, std::string(1, '\0'));
}

TEST(DecisionRequest, EveryBrokenRuleIsNamedByItsPlaceAndKind) {
  struct Case {
    std::string body, loc, type;
  };
  std::string options = "{";
  for (int i = 0; i < 256; ++i) options += (i ? ", \"o" : "\"o") + std::to_string(i) + "\": null";
  options += "}";
  std::string levels = "[";
  for (int i = 0; i < 11; ++i) levels += i ? ", \"l\"" : "\"l\"";
  levels += "]";
  const std::string criteria = R"(["body", "questions", "q", "criteria")";
  const std::vector<Case> cases = {
      {"[]", R"(["body"])", "dict_type"},
      {"null", R"(["body"])", "dict_type"},
      {R"("text")", R"(["body"])", "dict_type"},
      {R"({"questions": {"q": {"type": "noul"}}})", R"(["body", "state"])", "missing"},
      {R"({"state": "s"})", R"(["body", "questions"])", "missing"},
      {R"({"state": "s", "questions": null})", R"(["body", "questions"])", "dict_type"},
      {R"({"state": "s", "questions": []})", R"(["body", "questions"])", "dict_type"},
      {R"({"state": "s", "questions": {}})", R"(["body", "questions"])", "too_short"},
      {R"({"state": "s", "questions": {"": {"type": "noul"}}})", R"(["body", "questions", ""])",
       "string_too_short"},
      {Asking("null"), R"(["body", "questions", "q"])", "dict_type"},
      {Asking(R"("noul")"), R"(["body", "questions", "q"])", "dict_type"},
      {Asking("{}"), R"(["body", "questions", "q", "type"])", "missing"},
      {Asking(R"({"type": null})"), R"(["body", "questions", "q", "type"])", "literal_error"},
      {Asking(R"({"type": "boolean"})"), R"(["body", "questions", "q", "type"])", "literal_error"},
      {Asking(R"({"type": "Choice", "criteria": {"a": null}})"),
       R"(["body", "questions", "q", "type"])", "literal_error"},
      {Asking(R"({"type": "box"})"), R"(["body", "questions", "q", "type"])", "literal_error"},
      {Asking(R"({"type": "noul", "options": ["a"]})"), R"(["body", "questions", "q", "options"])",
       "extra_forbidden"},
      {Asking(R"({"type": "noul", "instructions": 5})"),
       R"(["body", "questions", "q", "instructions"])", "string_type"},
      {Asking(R"({"type": "noul", "instructions": false})"),
       R"(["body", "questions", "q", "instructions"])", "string_type"},
      {Asking(R"({"type": "choice"})"), criteria + "]", "missing"},
      {Asking(R"({"type": "choice", "criteria": null})"), criteria + "]", "dict_type"},
      {Asking(R"({"type": "choice", "criteria": ["a", "b"]})"), criteria + "]", "dict_type"},
      {Asking(R"({"type": "choice", "criteria": {}})"), criteria + "]", "too_short"},
      {Asking(R"({"type": "choice", "criteria": )" + options + "}"), criteria + "]", "too_long"},
      {Asking(R"({"type": "choice", "criteria": {"a": 1}})"), criteria + R"(, "a"])",
       "string_type"},
      {Asking(R"({"type": "choice", "criteria": {"a": null, "b": true}})"), criteria + R"(, "b"])",
       "string_type"},
      {Asking(R"({"type": "noul", "criteria": []})"), criteria + "]", "dict_type"},
      {Asking(R"({"type": "noul", "criteria": "x"})"), criteria + "]", "dict_type"},
      {Asking(R"({"type": "noul", "criteria": {"yes": "x"}})"), criteria + R"(, "yes"])",
       "extra_forbidden"},
      {Asking(R"({"type": "noul", "criteria": {"true": 1}})"), criteria + R"(, "true"])",
       "string_type"},
      {Asking(R"({"type": "score"})"), criteria + "]", "missing"},
      {Asking(R"({"type": "score", "criteria": null})"), criteria + "]", "list_type"},
      {Asking(R"({"type": "score", "criteria": {"0": "a", "1": "b"}})"), criteria + "]",
       "list_type"},
      {Asking(R"({"type": "score", "criteria": []})"), criteria + "]", "too_short"},
      {Asking(R"({"type": "score", "criteria": ["a"]})"), criteria + "]", "too_short"},
      {Asking(R"({"type": "score", "criteria": )" + levels + "}"), criteria + "]", "too_long"},
      {Asking(R"({"type": "score", "criteria": ["a", null]})"), criteria + ", 1]", "string_type"},
      {Asking(R"({"type": "score", "criteria": [3, "a"]})"), criteria + ", 0]", "string_type"},
      {With(R"("model": 5)"), R"(["body", "model"])", "string_type"},
      {With(R"("instructions": ["x"])"), R"(["body", "instructions"])", "string_type"},
      {With(R"("chat_template_kwargs": "x")"), R"(["body", "chat_template_kwargs"])", "dict_type"},
      {With(R"("chat_template_kwargs": {"enable_thinking": true})"),
       R"(["body", "chat_template_kwargs", "enable_thinking"])", "value_error"},
      {With(R"("chat_template_kwargs": {"enable_thinking": 1})"),
       R"(["body", "chat_template_kwargs", "enable_thinking"])", "value_error"},
      {With(R"("chat_template_kwargs": {"enable_thinking": "false"})"),
       R"(["body", "chat_template_kwargs", "enable_thinking"])", "value_error"},
      {With(R"("chat_template_kwargs": {"messages": []})"),
       R"(["body", "chat_template_kwargs", "messages"])", "value_error"},
      {With(R"("chat_template_kwargs": {"add_generation_prompt": false})"),
       R"(["body", "chat_template_kwargs", "add_generation_prompt"])", "value_error"},
      {With(R"("images": ["https://example.org/a.png"])"), R"(["body", "images"])", "value_error"},
      {With(R"("images": "https://example.org/a.png")"), R"(["body", "images"])", "list_type"},
      {With(R"("audio": [1])"), R"(["body", "audio"])", "value_error"},
      {With(R"("videos": {"a": 1})"), R"(["body", "videos"])", "list_type"},
      {With(R"("assets": {"photo": {"type": "image"}})"), R"(["body", "assets"])", "value_error"},
      {With(R"("cache_salt": "")"), R"(["body", "cache_salt"])", "value_error"},
      {With(R"("cache_salt": 4)"), R"(["body", "cache_salt"])", "string_type"},
      {With(R"("cache_salt": "a@b")"), R"(["body", "cache_salt"])", "value_error"},
      {With(R"("cache_salt": "a/b")"), R"(["body", "cache_salt"])", "value_error"},
      {With(R"("cache_salt": "a\\b")"), R"(["body", "cache_salt"])", "value_error"},
      {With(R"("cache_salt": "a\u0000b")"), R"(["body", "cache_salt"])", "value_error"},
      {With(R"("cache_salt": ")" + std::string(129, 'x') + R"(")"), R"(["body", "cache_salt"])",
       "value_error"},
      {With(R"("priority": 1.5)"), R"(["body", "priority"])", "int_type"},
      {With(R"("priority": "1")"), R"(["body", "priority"])", "int_type"},
      {With(R"("priority": 9223372036854775808)"), R"(["body", "priority"])", "int_type"},
      {With(R"("priority": true)"), R"(["body", "priority"])", "int_type"},
      {With(R"("request_id": 7)"), R"(["body", "request_id"])", "string_type"},
      {With(R"("request_id": "a\r\nSet-Cookie: x")"), R"(["body", "request_id"])", "value_error"},
      {With(R"("diagnostics": "yes")"), R"(["body", "diagnostics"])", "bool_type"},
  };
  for (const Case& c : cases) {
    const RequestProblem problem = Bad(c.body);
    EXPECT_EQ(problem.status.code(), Code::kInvalidArgument) << c.body;
    ASSERT_EQ(problem.issues.size(), 1u) << c.body;
    EXPECT_EQ(LocText(problem.issues[0]), c.loc) << c.body;
    EXPECT_EQ(problem.issues[0].type, c.type) << c.body;
    EXPECT_EQ(problem.issues[0].msg, problem.status.message());
    EXPECT_EQ(problem.issues[0].msg.find(PathOf(problem.issues[0].loc) + " "), 0u)
        << problem.issues[0].msg;
  }
}

TEST(DecisionRequest, ASaltCountsCharactersNotBytes) {
  std::string salt;
  for (int i = 0; i < 128; ++i) salt += "ü";
  EXPECT_EQ(Good(With(R"("cache_salt": ")" + salt + R"(")")).cache_salt, salt);
}

TEST(DecisionRequest, FalsyThinkingIsAccepted) {
  for (const std::string falsy : {"false", "null", "0", "0.0", R"("")", "[]", "{}"})
    Good(With(R"("chat_template_kwargs": {"enable_thinking": )" + falsy + ", \"other\": 1}"));
}

TEST(DecisionRequest, BoundsAreTheirOwnLastGoodValue) {
  std::string questions, options;
  for (int i = 0; i < 64; ++i)
    questions += (i ? ", \"q" : "\"q") + std::to_string(i) + R"(": {"type": "noul"})";
  for (int i = 0; i < 255; ++i) options += (i ? ", \"o" : "\"o") + std::to_string(i) + "\": null";
  EXPECT_EQ(Good(R"({"state": 0, "questions": {)" + questions + "}}").questions.size(), 64u);
  EXPECT_EQ(Good(Asking(R"({"type": "choice", "criteria": {)" + options + "}}"))
                .questions[0]
                .options.size(),
            255u);
  EXPECT_EQ(
      Good(Asking(R"({"type": "choice", "criteria": {"only": null}})")).questions[0].options.size(),
      1u);
  EXPECT_EQ(
      Good(Asking(R"({"type": "score", "criteria": ["a", "b"]})")).questions[0].options.size(), 2u);

  const RequestProblem problem =
      Bad(R"({"state": 0, "questions": {)" + questions + R"(, "x": {"type": "noul"}}})");
  EXPECT_EQ(LocText(problem.issues[0]), R"(["body", "questions"])");
  EXPECT_NE(problem.status.message().find("65"), std::string::npos);
  EXPECT_NE(problem.status.message().find("64"), std::string::npos);
}

TEST(DecisionRequest, TheServersOwnLimitsHold) {
  const std::string body =
      R"({"state": 0, "questions": {"a": {"type": "noul"}, "b": {"type": "noul"}}})";
  RequestLimits limits;
  limits.max_questions = 1;
  EXPECT_TRUE(std::holds_alternative<RequestProblem>(ParseDecisionRequest(body, limits)));
}

TEST(DecisionRequest, IssuesComeInRequestOrderAndStopAtTen) {
  std::string questions;
  for (int i = 0; i < 14; ++i)
    questions += (i ? ", \"q" : "\"q") + std::to_string(i) + R"(": {"type": "nope"})";
  const RequestProblem many = Bad(R"({"questions": {)" + questions + R"(}, "priority": "x"})");
  ASSERT_EQ(many.issues.size(), kMaxListedIssues);
  EXPECT_EQ(LocText(many.issues[0]), R"(["body", "state"])");
  EXPECT_EQ(LocText(many.issues[1]), R"(["body", "questions", "q0", "type"])");
  EXPECT_EQ(LocText(many.issues[9]), R"(["body", "questions", "q8", "type"])");

  const RequestProblem two =
      Bad(R"({"state": 1, "questions": {"a": {"type": "score"}}, "priority": "x"})");
  ASSERT_EQ(two.issues.size(), 2u);
  EXPECT_EQ(LocText(two.issues[1]), R"(["body", "priority"])");
}

// What a client meant as a request is refused like any other broken request, the rest as no JSON.
TEST(DecisionRequest, BrokenObjectsBreakARuleAndEverythingElseIsMalformed) {
  std::string deep(200, '[');
  deep += std::string(200, ']');
  struct Case {
    std::string body;
    Code code;
  };
  for (const Case& c : {
           Case{"", Code::kMalformed},
           Case{" \n", Code::kMalformed},
           Case{"state=1", Code::kMalformed},
           Case{"[1, 2", Code::kMalformed},
           Case{"NaN", Code::kMalformed},
           Case{"\xEF\xBB\xBF{}", Code::kMalformed},
           Case{"{\"state\": \"\xff\"}", Code::kMalformed},
           Case{"{\"state\": \"\xed\xa0\x80\"}", Code::kMalformed},
           Case{"{\"state\": \"\xc0\xaf\"}", Code::kMalformed},
           Case{"{\"state\": \"\xe0\x80\xaf\"}", Code::kMalformed},
           Case{"{\"state\": \"\xf4\x90\x80\x80\"}", Code::kMalformed},
           Case{"{\"state\": \"\xe2\x82", Code::kMalformed},
           Case{"{", Code::kInvalidArgument},
           Case{" {\"état\": \"한😀", Code::kInvalidArgument},
           Case{R"({"state": "x", "questions": {)", Code::kInvalidArgument},
           Case{R"({"state": NaN})", Code::kInvalidArgument},
           Case{R"({"state": 1,})", Code::kInvalidArgument},
           Case{R"({"state": 1} {})", Code::kInvalidArgument},
           Case{R"({"state": "\ud800"})", Code::kInvalidArgument},
           Case{R"({"state": )" + deep + "}", Code::kInvalidArgument},
       }) {
    const RequestProblem problem = Bad(c.body);
    EXPECT_EQ(problem.status.code(), c.code) << c.body;
    ASSERT_EQ(problem.issues.size(), 1u);
    EXPECT_EQ(problem.issues[0].type, "json_invalid");
    EXPECT_EQ(LocText(problem.issues[0]), R"(["body"])");
  }
}

TEST(DecisionRequest, AHugeKeyIsCutInMessagesButNotInItsPlace) {
  const std::string key(100'000, 'k');
  const RequestProblem problem =
      Bad(R"({"state": 1, "questions": {")" + key + R"(": {"type": "x"}}})");
  EXPECT_LT(problem.status.message().size(), 400u);
  EXPECT_EQ(std::get<std::string>(problem.issues[0].loc[2]), key);
}

TEST(Validation, CutsBetweenCharacters) {
  std::string text(63, 'a');
  text += "üüü";
  EXPECT_EQ(Shown(text), std::string(63, 'a') + "…");
  EXPECT_EQ(Shown("short"), "short");
}

}  // namespace
}  // namespace sysone
