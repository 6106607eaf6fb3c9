// SPDX-License-Identifier: Apache-2.0
#include "api_server/next_token_strategy.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/api_server/fake_tokenizer.h"
#include "tests/model/tokenizer_test_json.h"

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

// A tokenizer of our own, small, with the pattern of Qwen or of GPT-2.
std::shared_ptr<const Tokenizer> SmallTokenizer(const std::string& pre_tokenizer) {
  TokenizerJson json;
  json.pre_tokenizer = pre_tokenizer;
  json.more_tokens = {"ye", "yes", "no", "\u010a\u010a", ".\u010a", "\u0120t", "Qu"};
  json.merges =
      R"([["y", "e"], ["ye", "s"], ["n", "o"], ["\u010a", "\u010a"], [".", "\u010a"], ["\u0120", "t"], ["Q", "u"]])";
  json.added_tokens.clear();
  for (const char* token : {"<|im_start|>", "<|im_end|>", "<think>", "</think>"})
    json.added_tokens +=
        std::string(json.added_tokens.empty() ? "[" : ", ") + R"({"id": 0, "content": ")" + token +
        R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})";
  json.added_tokens += "]";
  const auto tokenizer = Tokenizer::FromHfJson(json.Text());
  SYSONE_CHECK(tokenizer.ok(), "%s", tokenizer.status().message().c_str());
  return *tokenizer;
}

std::string RandomText(std::mt19937& random) {
  static const char* kPieces[] = {
      "word",      " the", ".", "\n", "\n\n",   " ",      "\t",     "1234",           "<|im_end|>",
      "<|im_end|", "yes",  "Q", "'s", "\u00e9", "\u4e2d", "\u0301", "<tool_response>"};
  std::string text;
  for (size_t i = random() % 7; i > 0; --i) text += kPieces[random() % std::size(kPieces)];
  return text;
}

TEST_F(NextTokenStrategyTest, ShortcutsChangeNoPlan) {
  constexpr char kQwen[] =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})";
  constexpr char kGpt2[] =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  constexpr char kGuarded[] =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + "
      "'<|im_end|>\\n' }}{% endfor %}"
      "{% if messages[-1].content.startswith('word') %}x{% endif %}{{ '<|im_start|>assistant\\n' "
      "}}";
  constexpr char kShort[] =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' "
      "}}{% endfor %}a\\n";
  std::mt19937 random(3);
  for (const char* pre_tokenizer : {kQwen, kGpt2}) {
    // GPT-2's pattern joins the line feeds at the end of ChatML's empty thought with nothing behind them.
    for (const char* source : {pre_tokenizer == kQwen ? kChatMl : kShort, kGuarded}) {
      const auto tokenizer = SmallTokenizer(pre_tokenizer);
      const auto compiled = *ChatTemplate::Compile(source, {});
      const auto quick = NextTokenStrategy::Create(tokenizer, compiled, {Json(), 4096, true});
      const auto plain = NextTokenStrategy::Create(tokenizer, compiled, {Json(), 4096, false});
      ASSERT_TRUE(quick.ok() && plain.ok()) << quick.status().message();
      EXPECT_TRUE((*quick)->quick());
      EXPECT_FALSE((*plain)->quick());
      for (int i = 0; i < 200; ++i) {
        DecisionRequest request;
        request.state = Json::String(RandomText(random));
        request.instructions = random() % 2 ? RandomText(random) : "";
        const size_t questions = 1 + random() % 4;
        for (size_t q = 0; q < questions; ++q) {
          Question question{"q" + std::to_string(q),
                            QuestionType::kNoul,
                            "",
                            {{"yes", "", "", {}}, {"no", "", "", {}}}};
          if (random() % 8 != 0)
            question.instructions = random() % 3 ? "Is it so?" : RandomText(random);
          if (random() % 3 == 0) {
            question.type = QuestionType::kScore;
            question.options = {{"0", "low", "", {}}, {"1", RandomText(random), "", {}}};
          }
          request.questions.push_back(std::move(question));
        }
        const auto expected = (*plain)->Plan(request);
        const auto planned = (*quick)->Plan(request);
        const auto* a = std::get_if<DecisionJobPlan>(&expected);
        const auto* b = std::get_if<DecisionJobPlan>(&planned);
        ASSERT_EQ(a == nullptr, b == nullptr);
        if (a == nullptr) continue;
        ASSERT_EQ(a->tokens, b->tokens) << request.state.string();
        ASSERT_EQ(a->prefix_len, b->prefix_len);
        ASSERT_EQ(a->questions.size(), b->questions.size());
        for (size_t q = 0; q < a->questions.size(); ++q) {
          ASSERT_EQ(a->questions[q].suffix_begin, b->questions[q].suffix_begin);
          ASSERT_EQ(a->questions[q].suffix_end, b->questions[q].suffix_end);
          ASSERT_EQ(a->questions[q].prompt_tokens, b->questions[q].prompt_tokens);
          ASSERT_EQ(a->questions[q].label_ids, b->questions[q].label_ids);
        }
      }
    }
  }
}

TEST(BlockCache, ForgetsWhatWasNotAskedForLongest) {
  BlockCache cache(64 << 10);
  const auto tokens = [](TokenId id) { return std::make_shared<std::vector<TokenId>>(100, id); };
  EXPECT_EQ(cache.Find("question 0"), nullptr);
  for (int i = 0; i < 1000; ++i) {
    cache.Add("question " + std::to_string(i), tokens(i));
    ASSERT_LE(cache.bytes(), 64u << 10);
    const auto first = cache.Find("question 0");
    ASSERT_TRUE(first) << "asked again and again";
    EXPECT_EQ((*first)[0], 0);
  }
  EXPECT_EQ(cache.Find("question 1"), nullptr);
  EXPECT_EQ((*cache.Find("question 999"))[0], 999);
  cache.Add("huge", std::make_shared<std::vector<TokenId>>(10'000));
  EXPECT_EQ(cache.Find("huge"), nullptr) << "one text must not empty the cache";
}

}  // namespace
}  // namespace sysone
