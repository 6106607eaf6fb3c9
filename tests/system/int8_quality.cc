// What int8 costs: decisions of a served model in float32 against the same ones in int8, over varied requests, through the real
// template, tokenizer and decoder.
//
//   int8_quality MODEL DECISIONS [DTYPE[@BACKEND]…]      int8_quality qwen2.5-coder-1.5b 400 int8
//
// Fails unless the winner is float32's in at least 99 % of the decisions where its lead is over 0.02, and probabilities are off by
// at most 0.01 in the mean, taken over each decision's label that is off most. The mean over all labels is printed, too. The model must be in the cache (scripts/setup --test).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "api_server/chat_template.h"
#include "api_server/decision_request.h"
#include "api_server/next_token_strategy.h"
#include "kernels/backend.h"
#include "model/model_files.h"
#include "model/model_path.h"
#include "tests/system/models_folder.h"
#include "tests/system/varied_requests.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

constexpr int32_t kMaxTokens = 2048;
constexpr double kClearLead = 0.02, kSameWinners = 0.99, kMeanDifference = 0.01;

template <class T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

using Probabilities = std::vector<double>;

// The model in one type.
class Engine {
 public:
  Engine(const std::string& path, const std::string& dtype, const std::string& backend)
      : backend_(Must(MakeBackend({.name = backend, .dtype = dtype}))) {
    const ModelWeights weights = Must(OpenModelWeights(path));
    decoder_ = Must(Decoder::Load(*backend_, weights.config, weights.tensors,
                                  {kMaxTokens, 64, kMaxTokens}, [](double) {}));
  }

  std::string Describe() const { return backend_->Describe(); }

  // Of every question of a request, in one pass.
  std::vector<Probabilities> Decide(const DecisionJobPlan& plan) {
    const std::span<const TokenId> tokens(plan.tokens);
    JobTokens job{tokens.first(static_cast<size_t>(plan.prefix_len)), {}, false};
    for (const QuestionPlan& question : plan.questions)
      job.branches.push_back(
          {tokens.subspan(question.suffix_begin, question.suffix_end - question.suffix_begin),
           question.label_ids});
    const PassItem item{&job, 0, static_cast<int32_t>(job.branches.size())};
    Pass pass;
    pass.Build({&item, 1});
    std::vector<float> logits(pass.label_ids().size());
    decoder_->Forward(pass, logits, {});
    std::vector<Probabilities> all;
    const float* next = logits.data();
    for (const QuestionPlan& question : plan.questions) {
      all.push_back(Softmax({next, question.label_ids.size()}));
      next += question.label_ids.size();
    }
    return all;
  }

 private:
  static Probabilities Softmax(std::span<const float> logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    Probabilities p;
    double total = 0;
    for (const float logit : logits) total += p.emplace_back(std::exp(logit - largest));
    for (double& value : p) value /= total;
    return p;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
};

size_t Winner(const Probabilities& p) {
  return static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
}

double Lead(Probabilities p) {
  std::sort(p.rbegin(), p.rend());
  return p.size() < 2 ? 1 : p[0] - p[1];
}

struct Tally {
  int decisions = 0, clear = 0, changed = 0, clear_changed = 0;
  double sum = 0, largest = 0, label_sum = 0;
  size_t labels = 0;

  void Add(const Probabilities& want, const Probabilities& got) {
    double off = 0;
    // NaN counts as the largest difference.
    for (size_t i = 0; i < want.size(); ++i) {
      const double difference = std::isfinite(got[i]) ? std::abs(want[i] - got[i]) : 1;
      off = std::max(off, difference);
      label_sum += difference;
    }
    labels += want.size();
    const bool is_clear = Lead(want) > kClearLead, differs = Winner(want) != Winner(got);
    ++decisions;
    clear += is_clear;
    changed += differs;
    clear_changed += is_clear && differs;
    sum += off;
    largest = std::max(largest, off);
  }

  bool Passes() const {
    return clear > 0 && clear - clear_changed >= kSameWinners * clear &&
           sum <= kMeanDifference * decisions;
  }
};

int Run(const std::string& model, int decisions, const std::vector<std::string>& subjects) {
  const std::string path = Must(ResolveModel(model, {ModelsFolder(), ""})).path;
  const ModelFrontEnd front_end = Must(OpenModelFrontEnd(path));
  const auto chat_template = Must(
      ChatTemplate::Compile(front_end.chat_template.text, front_end.chat_template.special_tokens));
  const auto strategy =
      Must(NextTokenStrategy::Create(front_end.tokenizer, chat_template, {{}, kMaxTokens}));
  Engine reference(path, "float32", "cpu");
  std::vector<std::unique_ptr<Engine>> engines;
  for (const std::string& subject : subjects) {
    const size_t at = subject.find('@');
    engines.push_back(std::make_unique<Engine>(
        path, subject.substr(0, at), at == std::string::npos ? "cpu" : subject.substr(at + 1)));
  }
  std::vector<Tally> tallies(subjects.size());
  const int requests = (decisions + kVariedQuestions - 1) / kVariedQuestions;
  for (const std::string& body : VariedRequests(requests, 1)) {
    const auto parsed = ParseDecisionRequest(body, {});
    if (!std::holds_alternative<DecisionRequest>(parsed)) {
      std::fprintf(stderr, "refused: %s\n", body.c_str());
      return 1;
    }
    const auto planned = strategy->Plan(std::get<DecisionRequest>(parsed));
    const auto& plan = std::get<DecisionJobPlan>(planned);
    const auto want = reference.Decide(plan);
    for (size_t e = 0; e < engines.size(); ++e) {
      const auto got = engines[e]->Decide(plan);
      for (size_t q = 0; q < want.size(); ++q) tallies[e].Add(want[q], got[q]);
    }
  }
  bool passes = true;
  for (size_t e = 0; e < engines.size(); ++e) {
    const Tally& t = tallies[e];
    std::printf(
        "%s, %s: %d decisions, %d with a lead over %.2f\n  winner changed in %d, of these %d with "
        "such a lead (%.2f %% the same); probability off by %.4f in the mean (all labels: %.4f), "
        "%.3f at most: "
        "%s\n",
        model.c_str(), engines[e]->Describe().c_str(), t.decisions, t.clear, kClearLead, t.changed,
        t.clear_changed, 100.0 - 100.0 * t.clear_changed / std::max(1, t.clear),
        t.sum / t.decisions, t.label_sum / static_cast<double>(t.labels), t.largest,
        t.Passes() ? "passes" : "FAILS");
    passes &= t.Passes();
  }
  return passes ? 0 : 1;
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL DECISIONS [DTYPE[@BACKEND]...]\n", argv[0]);
    return 2;
  }
  std::vector<std::string> subjects(argv + 3, argv + argc);
  if (subjects.empty()) subjects = {"int8"};
  return sysone::Run(argv[1], std::max(1, std::atoi(argv[2])), subjects);
}
