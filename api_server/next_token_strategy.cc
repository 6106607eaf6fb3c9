// SPDX-License-Identifier: Apache-2.0
#include "api_server/next_token_strategy.h"

#include <algorithm>
#include <utility>

#include "api_server/question_block.h"
#include "api_server/template_kwargs.h"
#include "base/check.h"
#include "base/log.h"

namespace sysone {
namespace {

// Questions that a server is asked again and again are some thousands at most, of some hundred bytes.
constexpr size_t kBlockCacheBytes = 4 << 20;

std::string StateText(const DecisionRequest& request) {
  return request.state.is_string() ? request.state.string() : request.state.Dump();
}

// Between the state and the question in a message. Ends in a line feed: there the tokens of the two are apart.
constexpr std::string_view kStateEnd = "\n\n";

std::vector<ChatMessage> Conversation(const std::string& instructions, const std::string& user) {
  std::vector<ChatMessage> messages;
  if (!instructions.empty()) messages.push_back({"system", instructions});
  messages.push_back({"user", user});
  return messages;
}

// The rendered text from the closing line on, for a trial question of one type.
Result<std::string> LearnEnd(const ChatTemplate& chat_template, const Json& kwargs,
                             QuestionType type) {
  const std::string closing(ClosingLine(type));
  SYSONE_ASSIGN_OR_RETURN(
      const std::string text,
      chat_template.Render(Conversation("", "state\n\nQuestion: trial?\n" + closing), kwargs,
                           true));
  const size_t at = text.rfind(closing);
  if (at == std::string::npos)
    return Error(
        Code::kUnsupported,
        "the chat template changes the text of a message, so the end of a prompt is unknown");
  return text.substr(at);
}

RequestProblem TooManyOptions(const Question& question, size_t most) {
  ValidationIssue issue{{"body", "questions", question.id, "criteria"}, "", "too_long"};
  issue.msg = Format(
      "%s has %zu options, and this model's vocabulary has labels for %zu: merge or split them",
      PathOf(issue.loc).c_str(), question.options.size(), most);
  return OneIssue(std::move(issue));
}

size_t CommonPrefix(const std::vector<BlockCache::Tokens>& prompts) {
  if (prompts.size() < 2) return 0;
  const std::vector<TokenId>& first = *prompts[0];
  size_t length = first.size() - 1;  // each question keeps a token of its own: the one that is read
  for (size_t q = 1; q < prompts.size(); ++q) {
    const std::vector<TokenId>& other = *prompts[q];
    length = std::min(length, other.size() - 1);
    const auto end = first.begin() + static_cast<ptrdiff_t>(length);
    length =
        static_cast<size_t>(std::mismatch(first.begin(), end, other.begin()).first - first.begin());
  }
  return length;
}

}  // namespace

NextTokenStrategy::NextTokenStrategy(std::shared_ptr<const Tokenizer> tokenizer,
                                     std::shared_ptr<const ChatTemplate> chat_template,
                                     Options options, Json base_kwargs, PromptEnds ends,
                                     LabelSet labels)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      options_(std::move(options)),
      base_kwargs_(std::move(base_kwargs)),
      ends_(std::move(ends)),
      labels_(std::move(labels)),
      blocks_(kBlockCacheBytes) {
  if (options_.shortcuts) FindFrames();
}

// A frame is of use when it ends prompts in the way that the labels were resolved for.
void NextTokenStrategy::FindFrames() {
  constexpr std::string_view kRoles[] = {"system", "user"};
  for (const bool instructions : {false, true}) {
    std::optional<PromptFrame>& frame = frames_[instructions];
    frame = template_->FindFrame(std::span(kRoles).last(instructions ? 2 : 1), base_kwargs_);
    for (const QuestionType type :
         {QuestionType::kChoice, QuestionType::kNoul, QuestionType::kScore})
      if (frame && std::string(ClosingLine(type)) + frame->tail() != EndOf(type)) frame.reset();
  }
}

Result<std::unique_ptr<const NextTokenStrategy>> NextTokenStrategy::Create(
    std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
    Options options) {
  if (!options.default_kwargs.is_null() && !options.default_kwargs.is_object())
    return Error(Code::kInvalidArgument, "the default chat template kwargs must be a JSON object");
  if (options.default_kwargs.is_object())
    for (const auto& [key, value] : options.default_kwargs.members())
      if (const char* problem = TemplateKwargProblem(key, value))
        return Error(Code::kInvalidArgument, "the default chat template kwarg '%s' %s", key.c_str(),
                     problem);
  Json kwargs = MergeTemplateKwargs(Json::Object({{"enable_thinking", Json::Bool(false)}}),
                                    options.default_kwargs);
  PromptEnds ends;
  for (const auto& [type, end] :
       {std::pair(QuestionType::kChoice, &ends.choice), std::pair(QuestionType::kNoul, &ends.noul),
        std::pair(QuestionType::kScore, &ends.score)}) {
    Result<std::string> learned = LearnEnd(*chat_template, kwargs, type);
    if (!learned.ok())
      return Status(Code::kUnsupported, learned.status().message())
          .WithContext("the chat template cannot ask a trial question");
    *end = std::move(learned).value();
  }
  SYSONE_ASSIGN_OR_RETURN(LabelSet labels, LabelSet::Resolve(*tokenizer, ends));
  return std::unique_ptr<const NextTokenStrategy>(
      new NextTokenStrategy(std::move(tokenizer), std::move(chat_template), std::move(options),
                            std::move(kwargs), std::move(ends), std::move(labels)));
}

const std::string& NextTokenStrategy::EndOf(QuestionType type) const {
  switch (type) {
    case QuestionType::kChoice:
      return ends_.choice;
    case QuestionType::kNoul:
      return ends_.noul;
    case QuestionType::kScore:
      return ends_.score;
  }
  SYSONE_CHECK(false, "no such question type");
}

OrProblem<std::string> NextTokenStrategy::RenderPrompt(const DecisionRequest& request,
                                                       size_t index) const {
  const Question& question = request.questions[index];
  const auto labels = labels_.For(question.type, question.options.size());
  if (labels.empty()) return TooManyOptions(question, labels_.max_options());
  std::string user = StateText(request);
  user.append(kStateEnd).append(QuestionBlock(question, labels));
  const Result<std::string> text =
      template_->Render(Conversation(request.instructions, user),
                        MergeTemplateKwargs(base_kwargs_, request.chat_template_kwargs), true);
  const bool custom = !request.chat_template_kwargs.is_null();
  if (!text.ok()) {
    if (text.status().code() != Code::kInvalidArgument) return RequestProblem{text.status(), {}};
    ValidationIssue issue{
        {"body"},
        "the model's chat template refuses this request: " + text.status().message(),
        "value_error"};
    if (custom) {
      issue.loc.emplace_back("chat_template_kwargs");
    } else if (!request.instructions.empty()) {
      issue.loc.emplace_back("instructions");
    }
    return OneIssue(std::move(issue));
  }
  if (!text->ends_with(EndOf(question.type)))
    return OneIssue({{"body", "chat_template_kwargs"},
                     "chat_template_kwargs changes how the prompt ends, so the answer could not be "
                     "read: remove it",
                     "value_error"});
  return *text;
}

const PromptFrame* NextTokenStrategy::FrameOf(const DecisionRequest& request) const {
  if (!request.chat_template_kwargs.is_null()) return nullptr;
  const std::optional<PromptFrame>& frame = frames_[!request.instructions.empty()];
  return frame ? &*frame : nullptr;
}

bool NextTokenStrategy::EncodeParts(const DecisionRequest& request, const PromptFrame& frame,
                                    std::span<const std::string> blocks, Prompts& prompts) const {
  const size_t messages = request.instructions.empty() ? 1 : 2;
  const std::string state = StateText(request).append(kStateEnd);
  std::string user;
  for (const std::string& block : blocks) {
    if (block[0] != blocks[0][0]) return false;  // the tokens before it depend on it
    if (!frame.has_guards()) continue;
    user.assign(state).append(block);
    const std::string_view contents[] = {request.instructions, user};
    if (!frame.Fits(std::span(contents).last(messages))) return false;
  }
  std::string before;
  const std::string_view contents[] = {request.instructions, {}};
  frame.AppendHead(std::span(contents).last(messages), before);
  before += state;
  if (!tokenizer_->EncodeBefore(before, blocks[0][0], prompts.common)) return false;
  for (const std::string& block : blocks) prompts.rests.push_back(EncodeRest(frame, block));
  return true;
}

BlockCache::Tokens NextTokenStrategy::EncodeRest(const PromptFrame& frame,
                                                 const std::string& block) const {
  const std::string text = block + frame.tail();
  if (BlockCache::Tokens known = blocks_.Find(text)) return known;
  auto tokens = std::make_shared<std::vector<TokenId>>();
  tokenizer_->Encode(text, *tokens);
  blocks_.Add(text, tokens);
  return tokens;
}

std::optional<RequestProblem> NextTokenStrategy::Encode(const DecisionRequest& request,
                                                        Prompts& prompts) const {
  if (const PromptFrame* frame = FrameOf(request)) {
    std::vector<std::string> blocks;
    for (const Question& question : request.questions) {
      const auto labels = labels_.For(question.type, question.options.size());
      if (labels.empty()) return TooManyOptions(question, labels_.max_options());
      blocks.push_back(QuestionBlock(question, labels));
    }
    if (EncodeParts(request, *frame, blocks, prompts)) return std::nullopt;
  }
  for (size_t q = 0; q < request.questions.size(); ++q) {
    OrProblem<std::string> text = RenderPrompt(request, q);
    if (auto* problem = std::get_if<RequestProblem>(&text)) return std::move(*problem);
    auto tokens = std::make_shared<std::vector<TokenId>>();
    tokenizer_->Encode(std::get<std::string>(text), *tokens);
    prompts.rests.push_back(std::move(tokens));
  }
  return std::nullopt;
}

OrProblem<DecisionJobPlan> NextTokenStrategy::Plan(const DecisionRequest& request) const {
  Prompts prompts;
  if (auto problem = Encode(request, prompts)) return *std::move(problem);
  for (size_t q = 0; q < prompts.rests.size(); ++q) {
    const size_t tokens = prompts.common.size() + prompts.rests[q]->size();
    if (tokens > options_.max_model_len)
      return RequestProblem{
          Error(Code::kTooLarge,
                "the prompt of question '%s' has %zu tokens; this model takes at most %u: shorten "
                "'state' or the question",
                Shown(request.questions[q].id).c_str(), tokens, options_.max_model_len),
          {}};
  }

  DecisionJobPlan plan;
  const size_t shared = CommonPrefix(prompts.rests);
  plan.tokens = std::move(prompts.common);
  plan.tokens.insert(plan.tokens.end(), prompts.rests[0]->begin(),
                     prompts.rests[0]->begin() + static_cast<ptrdiff_t>(shared));
  const size_t prefix = plan.tokens.size();
  const bool alone = prompts.rests.size() == 1;
  plan.prefix_len = alone ? 0 : static_cast<uint32_t>(prefix);
  plan.questions.reserve(prompts.rests.size());
  for (size_t q = 0; q < prompts.rests.size(); ++q) {
    const std::vector<TokenId>& rest = *prompts.rests[q];
    QuestionPlan question;
    question.suffix_begin = alone ? 0 : static_cast<uint32_t>(plan.tokens.size());
    plan.tokens.insert(plan.tokens.end(), rest.begin() + static_cast<ptrdiff_t>(shared),
                       rest.end());
    question.suffix_end = static_cast<uint32_t>(plan.tokens.size());
    question.prompt_tokens = static_cast<uint32_t>(prefix + rest.size() - shared);
    const auto labels = labels_.For(request.questions[q].type, request.questions[q].options.size());
    question.label_ids.reserve(labels.size());
    for (const Label& label : labels) question.label_ids.push_back(label.id);
    plan.questions.push_back(std::move(question));
  }
  return plan;
}

}  // namespace sysone
