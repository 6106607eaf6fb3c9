// Lets Python's reference implementations look at ours: reads one JSON document a line, answers one a line.
//   oracle_bridge render FOLDER   {template, special_tokens, messages, kwargs, add_generation_prompt} → {rendered} | {error}
//   oracle_bridge answer FIELDS   {body, logits: {id: [number…]}} → the body of the 200, or {issues: […]}
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "api_server/chat_template.h"
#include "api_server/decision_request.h"
#include "api_server/decision_response.h"
#include "api_server/scoring.h"
#include "base/check.h"

namespace sysone {
namespace {

std::string RenderLine(const Json& line, const std::string& folder,
                       std::map<std::string, std::shared_ptr<const ChatTemplate>>& compiled) {
  const std::string name = line.Find("template")->string();
  auto& chat_template = compiled[name];
  if (!chat_template) {
    std::ostringstream text;
    text << std::ifstream(folder + "/" + name + ".jinja", std::ios::binary).rdbuf();
    std::map<std::string, std::string> special_tokens;
    for (const auto& [key, value] : line.Find("special_tokens")->members())
      special_tokens[key] = value.string();
    chat_template = *ChatTemplate::Compile(text.str(), special_tokens);
  }
  std::vector<ChatMessage> messages;
  for (const Json& message : line.Find("messages")->items())
    messages.push_back({message.Find("role")->string(), message.Find("content")->string()});
  const Result<std::string> text = chat_template->Render(
      messages, *line.Find("kwargs"), line.Find("add_generation_prompt")->boolean());
  return text.ok() ? Json::Object({{"rendered", Json::String(*text)}}).Dump()
                   : Json::Object({{"error", Json::String(text.status().message())}}).Dump();
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

int Run(const std::string& mode, const std::string& argument) {
  SYSONE_CHECK(mode == "render" || mode == "answer", "no such mode");
  std::map<std::string, std::shared_ptr<const ChatTemplate>> compiled;
  std::string text;
  while (std::getline(std::cin, text)) {
    const Json line = *Json::Parse(text);
    const std::string answer =
        mode == "render" ? RenderLine(line, argument, compiled)
                         : AnswerLine(line, argument == "vllm" ? ResponseFields::kVllm
                                                               : ResponseFields::kTypesafe);
    std::cout << answer << '\n';
  }
  return 0;
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: oracle_bridge render FOLDER | answer vllm|typesafe\n");
    return 2;
  }
  return sysone::Run(argv[1], argv[2]);
}
