// SPDX-License-Identifier: Apache-2.0
#include "api_server/next_token_strategy.h"

#include <gtest/gtest.h>

#include "tests/api_server/fake_tokenizer.h"

namespace sysone {
namespace {

// ChatML as Qwen3 writes it: an empty thought when thinking is off.
constexpr char kChatMl[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{% if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% if suffix is defined %}{{ suffix }}{% endif %}{% endif %}";

class NextTokenStrategyTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<const NextTokenStrategy>> Create(const std::string& source,
                                                          Json default_kwargs = Json(),
                                                          uint32_t max_model_len = 4096) {
    auto compiled = ChatTemplate::Compile(source, {});
    if (!compiled.ok()) return compiled.status();
    return NextTokenStrategy::Create(tokenizer_, *compiled,
                                     {std::move(default_kwargs), max_model_len});
  }

  std::unique_ptr<const NextTokenStrategy> Strategy(const std::string& source = kChatMl,
                                                    Json default_kwargs = Json(),
                                                    uint32_t max_model_len = 4096) {
    auto strategy = Create(source, std::move(default_kwargs), max_model_len);
    EXPECT_TRUE(strategy.ok()) << strategy.status().message();
    return std::move(strategy).value();
  }

  static DecisionRequest Request(const std::string& body) {
    OrProblem<DecisionRequest> parsed = ParseDecisionRequest(body, {});
    EXPECT_TRUE(std::holds_alternative<DecisionRequest>(parsed)) << body;
    return std::get<DecisionRequest>(std::move(parsed));
  }

  DecisionJobPlan Plan(const class Strategy& strategy, const std::string& body) {
    OrProblem<DecisionJobPlan> plan = strategy.Plan(Request(body));
    if (auto* problem = std::get_if<RequestProblem>(&plan)) {
      ADD_FAILURE() << problem->status.message();
      return {};
    }
    return std::get<DecisionJobPlan>(std::move(plan));
  }

  RequestProblem Problem(const class Strategy& strategy, const std::string& body) {
    OrProblem<DecisionJobPlan> plan = strategy.Plan(Request(body));
    if (std::holds_alternative<DecisionJobPlan>(plan)) {
      ADD_FAILURE() << "planned: " << body;
      return {};
    }
    return std::get<RequestProblem>(std::move(plan));
  }

  // The whole prompt of a question, put together from its parts.
  std::string PromptText(const DecisionJobPlan& plan, size_t q) {
    std::vector<TokenId> ids(plan.tokens.begin(), plan.tokens.begin() + plan.prefix_len);
    ids.insert(ids.end(), plan.tokens.begin() + plan.questions[q].suffix_begin,
               plan.tokens.begin() + plan.questions[q].suffix_end);
    EXPECT_EQ(ids.size(), plan.questions[q].prompt_tokens);
    return tokenizer_->Decode(ids.data(), ids.size());
  }

  // Suffixes follow the prefix and each other without gaps, none is empty, and they add up.
  static void CheckLayout(const DecisionJobPlan& plan) {
    uint32_t next = plan.prefix_len;
    uint64_t sum = 0;
    for (const QuestionPlan& question : plan.questions) {
      EXPECT_EQ(question.suffix_begin, next);
      EXPECT_LT(question.suffix_begin, question.suffix_end);
      EXPECT_EQ(question.prompt_tokens,
                plan.prefix_len + question.suffix_end - question.suffix_begin);
      next = question.suffix_end;
      sum += question.prompt_tokens;
    }
    EXPECT_EQ(next, plan.tokens.size());
    EXPECT_EQ(plan.input_tokens(), sum);
  }

  const std::shared_ptr<const FakeTokenizer> tokenizer_ =
      std::make_shared<FakeTokenizer>(FakeTokenizer::ChatMlWords());
};

constexpr char kTail[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";

TEST_F(NextTokenStrategyTest, AsksTheAnnouncedExampleWordForWord) {
  const DecisionJobPlan plan = Plan(*Strategy(), R"({
    "state": {"team": "billing", "language": "French"},
    "questions": {
      "team": {"type": "choice", "instructions": "Which team does the message name?",
               "criteria": {"billing": null, "shipping": null, "security": null}},
      "lang": {"type": "choice", "instructions": "Which language does the message name?",
               "criteria": {"English": null, "French": null}}},
    "chat_template_kwargs": {"enable_thinking": false}})");
  CheckLayout(plan);
  EXPECT_EQ(PromptText(plan, 0),
            "<|im_start|>user\n{\"team\": \"billing\", \"language\": \"French\"}\n\n"
            "Question: Which team does the message name?\nA: billing\nB: shipping\nC: security\n"
            "Answer with the letter of one option only." +
                std::string(kTail));
  EXPECT_EQ(PromptText(plan, 1),
            "<|im_start|>user\n{\"team\": \"billing\", \"language\": \"French\"}\n\n"
            "Question: Which language does the message name?\nA: English\nB: French\n"
            "Answer with the letter of one option only." +
                std::string(kTail));
  EXPECT_EQ(plan.questions[0].label_ids, (std::vector<TokenId>{'A', 'B', 'C'}));
  EXPECT_EQ(plan.questions[1].label_ids, (std::vector<TokenId>{'A', 'B'}));
  const std::string shared = tokenizer_->Decode(plan.tokens.data(), plan.prefix_len);
  EXPECT_TRUE(shared.ends_with("Question: Which ")) << shared;
}

TEST_F(NextTokenStrategyTest, InstructionsOfTheRequestBecomeTheSystemMessage) {
  const DecisionJobPlan plan =
      Plan(*Strategy(),
           R"({"state": "s", "instructions": "Be strict.", "questions": {"q": {"type": "noul"}}})");
  EXPECT_EQ(PromptText(plan, 0),
            "<|im_start|>system\nBe strict.<|im_end|>\n<|im_start|>user\ns\n\nyes\nno\nAnswer with "
            "yes or no only." +
                std::string(kTail));
  EXPECT_EQ(plan.questions[0].label_ids,
            (std::vector<TokenId>{*tokenizer_->TokenToId("yes"), *tokenizer_->TokenToId("no")}));
}

TEST_F(NextTokenStrategyTest, AStringStateIsVerbatimAndOthersAreJson) {
  const auto strategy = Strategy();
  const auto state_of = [&](const std::string& state) {
    const std::string text = PromptText(
        Plan(*strategy, R"({"state": )" + state + R"(, "questions": {"q": {"type": "noul"}}})"), 0);
    const std::string head = "<|im_start|>user\n";
    return text.substr(head.size(), text.find("\n\nyes\nno\n") - head.size());
  };
  EXPECT_EQ(state_of(R"("a \"b\" \n")"), "a \"b\" \n");
  EXPECT_EQ(state_of("null"), "null");
  EXPECT_EQ(state_of(R"([1.0,{"é":"\u00e9"}])"), R"([1.0, {"é": "é"}])");
}

TEST_F(NextTokenStrategyTest, OneQuestionHasNoSharedPrefix) {
  const DecisionJobPlan plan =
      Plan(*Strategy(), R"({"state": "s", "questions": {"q": {"type": "noul"}}})");
  CheckLayout(plan);
  EXPECT_EQ(plan.prefix_len, 0u);
  EXPECT_EQ(plan.questions[0].suffix_begin, 0u);
}

TEST_F(NextTokenStrategyTest, EqualQuestionsKeepATokenOfTheirOwn) {
  const DecisionJobPlan plan = Plan(
      *Strategy(),
      R"({"state": "s", "questions": {"a": {"type": "noul"}, "b": {"type": "noul"}, "c": {"type": "noul"}}})");
  CheckLayout(plan);
  EXPECT_EQ(plan.prefix_len + 1, plan.questions[0].prompt_tokens);
  EXPECT_EQ(PromptText(plan, 0), PromptText(plan, 2));
}

TEST_F(NextTokenStrategyTest, APromptDoesNotDependOnItsCompany) {
  const auto strategy = Strategy();
  const std::string noul = R"({"type": "noul", "instructions": "Spam?"})";
  const std::string score =
      R"({"type": "score", "instructions": "How bad?", "criteria": ["a", "b"]})";
  const DecisionJobPlan alone =
      Plan(*strategy, R"({"state": "s", "questions": {"x": )" + noul + "}}");
  const DecisionJobPlan first =
      Plan(*strategy, R"({"state": "s", "questions": {"y": )" + noul + R"(, "z": )" + score + "}}");
  const DecisionJobPlan last =
      Plan(*strategy, R"({"state": "s", "questions": {"z": )" + score + R"(, "y": )" + noul + "}}");
  CheckLayout(first);
  EXPECT_EQ(PromptText(alone, 0), PromptText(first, 0));
  EXPECT_EQ(PromptText(alone, 0), PromptText(last, 1));
  EXPECT_EQ(alone.questions[0].label_ids, last.questions[1].label_ids);
  EXPECT_EQ(first.questions[1].label_ids, (std::vector<TokenId>{'0', '1'}));
}

TEST_F(NextTokenStrategyTest, APromptOverTheModelsLengthIsRefusedWithBothNumbers) {
  const auto strategy = Strategy(kChatMl, Json(), 100);
  const RequestProblem problem =
      Problem(*strategy, R"({"state": ")" + std::string(200, 'x') +
                             R"(", "questions": {"q": {"type": "noul"}}})");
  EXPECT_EQ(problem.status.code(), Code::kTooLarge);
  EXPECT_NE(problem.status.message().find("100"), std::string::npos) << problem.status.message();
  const DecisionJobPlan plan = Plan(*Strategy(), R"({"state": ")" + std::string(200, 'x') +
                                                     R"(", "questions": {"q": {"type": "noul"}}})");
  EXPECT_NE(problem.status.message().find(std::to_string(plan.questions[0].prompt_tokens)),
            std::string::npos);
}

TEST_F(NextTokenStrategyTest, APromptOfExactlyTheModelsLengthIsTaken) {
  const std::string body = R"({"state": "x", "questions": {"q": {"type": "noul"}}})";
  const uint32_t length = Plan(*Strategy(), body).questions[0].prompt_tokens;
  EXPECT_EQ(Plan(*Strategy(kChatMl, Json(), length), body).questions.size(), 1u);
  EXPECT_EQ(Problem(*Strategy(kChatMl, Json(), length - 1), body).status.code(), Code::kTooLarge);
}

TEST_F(NextTokenStrategyTest, MoreOptionsThanTheVocabularyHasLabelsForNameTheLimit) {
  std::string options;
  for (int i = 0; i < 54; ++i) options += (i ? ", \"o" : "\"o") + std::to_string(i) + "\": null";
  const RequestProblem problem =
      Problem(*Strategy(), R"({"state": "s", "questions": {"q": {"type": "choice", "criteria": {)" +
                               options + "}}}}");
  EXPECT_EQ(problem.status.code(), Code::kInvalidArgument);
  ASSERT_EQ(problem.issues.size(), 1u);
  EXPECT_EQ(problem.issues[0].loc,
            (std::vector<ValidationIssue::LocPart>{"body", "questions", "q", "criteria"}));
  EXPECT_NE(problem.status.message().find("54 options"), std::string::npos)
      << problem.status.message();
  EXPECT_NE(problem.status.message().find("labels for 53"), std::string::npos)
      << problem.status.message();
}

TEST_F(NextTokenStrategyTest, LongListsUseThePoolInOrder) {
  std::string options;
  for (int i = 0; i < 28; ++i) options += (i ? ", \"o" : "\"o") + std::to_string(i) + "\": null";
  const DecisionJobPlan plan =
      Plan(*Strategy(), R"({"state": "s", "questions": {"q": {"type": "choice", "criteria": {)" +
                            options + "}}}}");
  EXPECT_EQ(plan.questions[0].label_ids.size(), 28u);
  EXPECT_EQ(plan.questions[0].label_ids[27], 'b');
  EXPECT_NE(PromptText(plan, 0).find("\nZ: o25\na: o26\nb: o27\n"), std::string::npos);
}

TEST_F(NextTokenStrategyTest, ArgumentsThatChangeTheEndOfThePromptAreRefused) {
  const RequestProblem problem = Problem(
      *Strategy(),
      R"({"state": "s", "questions": {"q": {"type": "noul"}}, "chat_template_kwargs": {"suffix": "So: "}})");
  EXPECT_EQ(problem.status.code(), Code::kInvalidArgument);
  ASSERT_EQ(problem.issues.size(), 1u);
  EXPECT_EQ(problem.issues[0].loc,
            (std::vector<ValidationIssue::LocPart>{"body", "chat_template_kwargs"}));
}

TEST_F(NextTokenStrategyTest, TheServersArgumentsAreTheBaseOfTheRequests) {
  const auto strategy = Strategy(kChatMl, Json::Object({{"suffix", Json::String("So: ")}}));
  const DecisionJobPlan plan =
      Plan(*strategy, R"({"state": "s", "questions": {"q": {"type": "noul"}}})");
  EXPECT_TRUE(PromptText(plan, 0).ends_with("</think>\n\nSo: "));
  EXPECT_EQ(
      Problem(
          *strategy,
          R"({"state": "s", "questions": {"q": {"type": "noul"}}, "chat_template_kwargs": {"suffix": ""}})")
          .status.code(),
      Code::kInvalidArgument);
}

TEST_F(NextTokenStrategyTest, AServerThatWouldThinkIsRefusedAtStart) {
  const auto strategy = Create(kChatMl, Json::Object({{"enable_thinking", Json::Bool(true)}}));
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.status().code(), Code::kInvalidArgument);
}

TEST_F(NextTokenStrategyTest, ATemplateThatRefusesARequestIsTheRequestsFault) {
  const std::string no_system =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" +
      std::string(kChatMl);
  const RequestProblem problem =
      Problem(*Strategy(no_system),
              R"({"state": "s", "instructions": "x", "questions": {"q": {"type": "noul"}}})");
  EXPECT_EQ(problem.status.code(), Code::kInvalidArgument);
  ASSERT_EQ(problem.issues.size(), 1u);
  EXPECT_EQ(problem.issues[0].loc, (std::vector<ValidationIssue::LocPart>{"body", "instructions"}));
  EXPECT_NE(problem.status.message().find("no system role"), std::string::npos);
}

TEST_F(NextTokenStrategyTest, ATemplateThatCannotBeAskedIsRefusedAtStart) {
  for (const char* source :
       {"{{ messages[0].content | upper }}", "{{ raise_exception('never') }}", "constant"}) {
    const auto strategy = Create(source);
    ASSERT_FALSE(strategy.ok()) << source;
    EXPECT_EQ(strategy.status().code(), Code::kUnsupported) << source;
  }
}

TEST_F(NextTokenStrategyTest, ATokenizerWithoutSingleTokenLabelsIsRefusedAtStart) {
  auto compiled = ChatTemplate::Compile(kChatMl, {});
  ASSERT_TRUE(compiled.ok());
  const auto bytes_only =
      std::make_shared<FakeTokenizer>(std::vector<std::string>{"<|im_start|>", "<|im_end|>"});
  const auto strategy = NextTokenStrategy::Create(bytes_only, *compiled, {Json(), 100});
  ASSERT_FALSE(strategy.ok());
  EXPECT_EQ(strategy.status().code(), Code::kUnsupported);
  EXPECT_NE(strategy.status().message().find("'yes'"), std::string::npos);
}

}  // namespace
}  // namespace sysone
