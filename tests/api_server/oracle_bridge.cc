// Lets Python's reference implementations look at ours: reads one JSON document a line, answers one a line.
//   oracle_bridge render FOLDER   {template, special_tokens, messages, kwargs, add_generation_prompt} → {rendered} | {error}
//   oracle_bridge answer FIELDS   {body, logits: {id: [number…]}} → the body of the 200, or {issues: […]}
//   oracle_bridge plan MODEL      {body} → {prompts: [[id…]…], labels: [[id…]…]}, or {issues: […]}
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "api_server/chat_template.h"
#include "api_server/decision_request.h"
#include "api_server/decision_response.h"
#include "api_server/next_token_strategy.h"
#include "api_server/scoring.h"
#include "base/check.h"
#include "model/chat_template_source.h"
#include "model/gguf.h"

namespace sysone {
namespace {

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string RenderLine(const Json& line, const std::string& folder,
                       std::map<std::string, std::shared_ptr<const ChatTemplate>>& compiled) {
  const std::string name = line.Find("template")->string();
  auto& chat_template = compiled[name];
  if (!chat_template) {
    std::map<std::string, std::string> special_tokens;
    for (const auto& [key, value] : line.Find("special_tokens")->members())
      special_tokens[key] = value.string();
    chat_template =
        *ChatTemplate::Compile(ReadFile(folder + "/" + name + ".jinja"), special_tokens);
  }
  std::vector<ChatMessage> messages;
  for (const Json& message : line.Find("messages")->items())
    messages.push_back({message.Find("role")->string(), message.Find("content")->string()});
  const Result<std::string> text = chat_template->Render(
      messages, *line.Find("kwargs"), line.Find("add_generation_prompt")->boolean());
  return text.ok() ? Json::Object({{"rendered", Json::String(*text)}}).Dump()
                   : Json::Object({{"error", Json::String(text.status().message())}}).Dump();
}

std::string Issues(const RequestProblem& problem) {
  std::vector<Json> issues;
  for (const ValidationIssue& issue : problem.issues) issues.push_back(Json::String(issue.msg));
  return Json::Object({{"issues", Json::Array(std::move(issues))}}).Dump();
}

std::string AnswerLine(const Json& line, ResponseFields fields) {
  OrProblem<DecisionRequest> parsed = ParseDecisionRequest(line.Find("body")->string(), {});
  if (const auto* problem = std::get_if<RequestProblem>(&parsed)) {
    std::vector<Json> issues;
    for (const ValidationIssue& issue : problem->issues) issues.push_back(Json::String(issue.msg));
    return Json::Object({{"issues", Json::Array(std::move(issues))}}).Dump();
  }
  const auto& request = std::get<DecisionRequest>(parsed);
  std::vector<Answer> answers;
  for (const Question& question : request.questions) {
    std::vector<float> logits;
    std::vector<TokenId> ids;
    for (const Json& logit : line.Find("logits")->Find(question.id)->items()) {
      logits.push_back(static_cast<float>(*logit.AsDouble()));
      ids.push_back(static_cast<TokenId>(ids.size()));
    }
    answers.push_back(
        *ScoreLabels(question.type, {logits, ids, FullHead{100, 0}}, ConfidenceRule::kTypesafe));
  }
  ResponseMeta meta{DecisionId(request.request_id, 1),   1764460800, "test-model", 100, 7,
                    request.diagnostics.value_or(false), fields};
  return WriteDecisionResponse(request, answers, meta);
}

// The strategy of a model on disk: a GGUF file or a Hugging Face folder.
std::unique_ptr<const NextTokenStrategy> OpenStrategy(const std::string& path) {
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplateSource source;
  if (path.ends_with(".gguf")) {
    const auto file = *GgufFile::Open(path);
    tokenizer = *Tokenizer::FromGguf(*file);
    source = *ReadGgufChatTemplate(*file);
  } else {
    tokenizer = *Tokenizer::FromHfJson(ReadFile(path + "/tokenizer.json"));
    source = *ReadHfChatTemplate(path);
  }
  auto chat_template = *ChatTemplate::Compile(source.text, source.special_tokens);
  auto strategy =
      NextTokenStrategy::Create(std::move(tokenizer), std::move(chat_template), {Json(), 100'000});
  return std::move(strategy).value();
}

Json IdList(std::span<const TokenId> first, std::span<const TokenId> second) {
  std::vector<Json> ids;
  for (const auto part : {first, second})
    for (const TokenId id : part) ids.push_back(Json::Number(std::to_string(id)));
  return Json::Array(std::move(ids));
}

std::string PlanLine(const Json& line, const NextTokenStrategy& strategy) {
  OrProblem<DecisionRequest> parsed = ParseDecisionRequest(line.Find("body")->string(), {});
  if (const auto* problem = std::get_if<RequestProblem>(&parsed)) return Issues(*problem);
  const OrProblem<DecisionJobPlan> planned = strategy.Plan(std::get<DecisionRequest>(parsed));
  if (const auto* problem = std::get_if<RequestProblem>(&planned)) return Issues(*problem);
  const auto& plan = std::get<DecisionJobPlan>(planned);
  const std::span<const TokenId> tokens = plan.tokens;
  std::vector<Json> prompts, labels;
  for (const QuestionPlan& question : plan.questions) {
    const size_t own = question.suffix_end - question.suffix_begin;
    prompts.push_back(
        IdList(tokens.first(plan.prefix_len), tokens.subspan(question.suffix_begin, own)));
    labels.push_back(IdList(question.label_ids, {}));
  }
  return Json::Object({{"prompts", Json::Array(std::move(prompts))},
                       {"labels", Json::Array(std::move(labels))}})
      .Dump();
}

int Run(const std::string& mode, const std::string& argument) {
  SYSONE_CHECK(mode == "render" || mode == "answer" || mode == "plan", "no such mode");
  std::map<std::string, std::shared_ptr<const ChatTemplate>> compiled;
  const auto strategy = mode == "plan" ? OpenStrategy(argument) : nullptr;
  const auto fields = argument == "vllm" ? ResponseFields::kVllm : ResponseFields::kTypesafe;
  std::string text;
  while (std::getline(std::cin, text)) {
    const Json line = *Json::Parse(text);
    std::cout << (strategy           ? PlanLine(line, *strategy)
                  : mode == "render" ? RenderLine(line, argument, compiled)
                                     : AnswerLine(line, fields))
              << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr,
                 "usage: oracle_bridge render FOLDER | answer vllm|typesafe | plan MODEL\n");
    return 2;
  }
  return sysone::Run(argv[1], argv[2]);
}
