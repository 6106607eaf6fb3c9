// The served models on their real weights against transformers in float32 (tests/golden/make_decision_goldens.py): from the
// request's JSON to the log-probability of every label, through the parts that the programs are made of.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "api_server/chat_template.h"
#include "api_server/decision_request.h"
#include "api_server/next_token_strategy.h"
#include "base/json.h"
#include "kernels/backend.h"
#include "model/model_files.h"
#include "model/model_path.h"
#include "tests/system/models_folder.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

// float32: the two engines sum the same products in another order. The differences seen are near 1e-5; the contract is 1e-3.
constexpr double kFloat32Tolerance = 1e-3;

// bfloat16 rounds every weight, and where the CPU multiplies in bfloat16 also the inputs of every product, by a relative error
// of at most 2^-8. The 2 L parts of L layers add to the residual stream, and their errors are independent, so a logit is off by
// about 2^-8 · sqrt(2 L) of its size. The log of the sum over the vocabulary is dominated by logits of that size too.
double Bfloat16Tolerance(size_t layers, double largest_logit) {
  return 0x1p-8 * std::sqrt(2.0 * static_cast<double>(layers)) * std::max(largest_logit, 1.0);
}

// In bfloat16 the winner must be the reference's wherever its lead, as a difference of log-probabilities, exceeds what two
// labels can be off together.
struct Setting {
  std::string model, dtype;
};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<TokenId> Ids(const Json& list) {
  std::vector<TokenId> ids;
  for (const Json& id : list.items()) ids.push_back(static_cast<TokenId>(*id.AsInt64()));
  return ids;
}

size_t Winner(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// How far the first is ahead of the second.
double Lead(std::vector<double> values) {
  std::sort(values.rbegin(), values.rend());
  return values.size() < 2 ? INFINITY : values[0] - values[1];
}

class DecisionGolden : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    const auto path = ResolveModel(GetParam().model, {ModelsFolder(), ""});
    ASSERT_TRUE(path.ok()) << path.status().message();
    ASSERT_FALSE(path->path.empty())
        << GetParam().model << " is not in the cache: run scripts/setup --test";
    auto golden = Json::Parse(Read(std::string(SYSONE_SOURCE_DIR) + "/tests/golden/decisions/" +
                                   GetParam().model + ".json"));
    ASSERT_TRUE(golden.ok()) << golden.status().message();
    golden_ = *std::move(golden);

    const auto front_end = OpenModelFrontEnd(path->path);
    ASSERT_TRUE(front_end.ok()) << front_end.status().message();
    const auto chat_template = ChatTemplate::Compile(front_end->chat_template.text,
                                                     front_end->chat_template.special_tokens);
    ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
    auto strategy =
        NextTokenStrategy::Create(front_end->tokenizer, *chat_template, {{}, kMaxTokens});
    ASSERT_TRUE(strategy.ok()) << strategy.status().message();
    strategy_ = *std::move(strategy);
    LoadDecoder(path->path);
  }

  void LoadDecoder(const std::string& path) {
    const auto weights = OpenModelWeights(path);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    BackendOptions options;
    options.dtype = GetParam().dtype;
    auto backend = MakeBackend(options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    backend_ = *std::move(backend);
    layers_ = weights->config.layers.size();
    const DecoderLimits limits{kMaxTokens, 64, kMaxTokens};
    auto decoder =
        Decoder::Load(*backend_, weights->config, weights->tensors, limits, [](double) {});
    ASSERT_TRUE(decoder.ok()) << decoder.status().message();
    decoder_ = *std::move(decoder);
  }

  // One pass over all questions of a request; log-probabilities and the largest |logit| of each question.
  void Run(const DecisionJobPlan& plan, std::vector<std::vector<double>>& logprobs,
           std::vector<double>& largest) {
    const std::span<const TokenId> tokens(plan.tokens);
    JobTokens job{tokens.first(plan.prefix_len), {}, true};
    for (const QuestionPlan& question : plan.questions)
      job.branches.push_back(
          {tokens.subspan(question.suffix_begin, question.suffix_end - question.suffix_begin),
           question.label_ids});
    const PassItem item{&job, 0, static_cast<int32_t>(job.branches.size())};
    Pass pass;
    pass.Build({&item, 1});
    std::vector<float> logits(pass.label_ids().size());
    std::vector<HeadSummary> summaries(plan.questions.size());
    decoder_->Forward(pass, logits, summaries);
    size_t next = 0;
    for (size_t q = 0; q < plan.questions.size(); ++q) {
      logprobs.emplace_back();
      largest.push_back(std::abs(summaries[q].log_sum_exp));
      for (size_t i = 0; i < plan.questions[q].label_ids.size(); ++i, ++next) {
        logprobs.back().push_back(static_cast<double>(logits[next]) - summaries[q].log_sum_exp);
        largest.back() = std::max(largest.back(), static_cast<double>(std::abs(logits[next])));
      }
    }
  }

  static constexpr int32_t kMaxTokens = 2048;
  Json golden_;
  std::unique_ptr<const NextTokenStrategy> strategy_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  size_t layers_ = 0;
};

TEST_P(DecisionGolden, PromptsTokensAndLogProbabilitiesAreThoseOfTheReference) {
  const bool exact = GetParam().dtype == "float32";
  size_t decisions = 0;
  size_t same_winner = 0;
  double worst = 0;
  for (const Json& entry : golden_.items()) {
    const auto parsed = ParseDecisionRequest(entry.Find("request")->Dump(), {});
    ASSERT_TRUE(std::holds_alternative<DecisionRequest>(parsed));
    const DecisionRequest& request = std::get<DecisionRequest>(parsed);
    const auto planned = strategy_->Plan(request);
    ASSERT_TRUE(std::holds_alternative<DecisionJobPlan>(planned));
    const DecisionJobPlan& plan = std::get<DecisionJobPlan>(planned);
    std::vector<std::vector<double>> logprobs;
    std::vector<double> largest;
    Run(plan, logprobs, largest);

    const auto& questions = entry.Find("questions")->items();
    ASSERT_EQ(questions.size(), request.questions.size());
    for (size_t q = 0; q < questions.size(); ++q) {
      const auto prompt = strategy_->RenderPrompt(request, q);
      ASSERT_TRUE(std::holds_alternative<std::string>(prompt));
      ASSERT_EQ(std::get<std::string>(prompt), questions[q].Find("prompt")->string());
      std::vector<TokenId> tokens(plan.tokens.begin(), plan.tokens.begin() + plan.prefix_len);
      tokens.insert(tokens.end(), plan.tokens.begin() + plan.questions[q].suffix_begin,
                    plan.tokens.begin() + plan.questions[q].suffix_end);
      ASSERT_EQ(tokens, Ids(*questions[q].Find("ids"))) << questions[q].Find("prompt")->string();
      ASSERT_EQ(plan.questions[q].label_ids, Ids(*questions[q].Find("label_ids")));

      std::vector<double> expected;
      for (const Json& value : questions[q].Find("logprobs")->items())
        expected.push_back(*value.AsDouble());
      const double tolerance = exact ? kFloat32Tolerance : Bfloat16Tolerance(layers_, largest[q]);
      for (size_t i = 0; i < expected.size(); ++i) {
        const double difference = std::abs(logprobs[q][i] - expected[i]);
        // Written so that NaN fails.
        ASSERT_TRUE(difference <= tolerance) << "decision " << decisions << ", label " << i << ": "
                                             << logprobs[q][i] << " instead of " << expected[i];
        worst = std::max(worst, difference);
      }
      ++decisions;
      const bool same = Winner(logprobs[q]) == Winner(expected);
      same_winner += same;
      EXPECT_TRUE(same || (!exact && Lead(expected) <= 2 * tolerance)) << "decision " << decisions;
    }
  }
  std::printf(
      "%s %s: %zu decisions, same winner in %zu, largest difference of a log-probability %.2g\n",
      GetParam().model.c_str(), GetParam().dtype.c_str(), decisions, same_winner, worst);
  EXPECT_GE(decisions, 40u);
}

INSTANTIATE_TEST_SUITE_P(Served, DecisionGolden,
                         ::testing::Values(Setting{"smollm2-135m", "float32"},
                                           Setting{"smollm2-135m", "bfloat16"},
                                           Setting{"qwen2.5-coder-1.5b", "float32"},
                                           Setting{"qwen2.5-coder-1.5b", "bfloat16"}),
                         [](const auto& setting) {
                           std::string name = setting.param.model + "_" + setting.param.dtype;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace sysone
