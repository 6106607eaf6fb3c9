// The strategy for ordinary chat models: one chat per question, rendered by the model's own
// template; the answer is read from the scores of the label tokens at the place of the reply's
// first token.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "api_server/block_cache.h"
#include "api_server/chat_template.h"
#include "api_server/labels.h"
#include "api_server/strategy.h"

namespace sysone {

class NextTokenStrategy : public Strategy {
 public:
  struct Options {
    Json default_kwargs;         // object or null: the server's --default-chat-template-kwargs
    uint32_t max_model_len = 0;  // longest prompt, tokens
    // Prompts from frames and cached questions where that is provably the same; false: every prompt is rendered and
    // encoded as a whole (the reference in tests).
    bool shortcuts = true;
  };

  // Renders a trial question of each type to learn how prompts end, and resolves the labels there.
  // kUnsupported, with the reason, for a template or tokenizer that this strategy cannot use;
  // kInvalidArgument for default kwargs that it refuses.
  static Result<std::unique_ptr<const NextTokenStrategy>> Create(
      std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
      Options options);

  OrProblem<DecisionJobPlan> Plan(const DecisionRequest& request) const override;

  // The text whose tokens are question `index`'s prompt.
  OrProblem<std::string> RenderPrompt(const DecisionRequest& request, size_t index) const;

  const LabelSet& labels() const { return labels_; }

  // When prompts come from frames.
  bool quick() const override { return frames_[0] && frames_[1]; }

 private:
  NextTokenStrategy(std::shared_ptr<const Tokenizer> tokenizer,
                    std::shared_ptr<const ChatTemplate> chat_template, Options options,
                    Json base_kwargs, PromptEnds ends, LabelSet labels);

  const std::string& EndOf(QuestionType type) const;

  // The prompt of question q is `common` and then `rests[q]`.
  struct Prompts {
    std::vector<TokenId> common;
    std::vector<BlockCache::Tokens> rests;
  };

  void FindFrames();
  // The frame that may describe a request's prompts; nullptr when they must be rendered.
  const PromptFrame* FrameOf(const DecisionRequest& request) const;
  std::optional<RequestProblem> Encode(const DecisionRequest& request, Prompts& prompts) const;
  // Without rendering, what the questions share once; false where there is no proof that this is the same.
  bool EncodeParts(const DecisionRequest& request, const PromptFrame& frame,
                   std::span<const std::string> blocks, Prompts& prompts) const;
  BlockCache::Tokens EncodeRest(const PromptFrame& frame, const std::string& block) const;

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::shared_ptr<const ChatTemplate> template_;
  const Options options_;
  const Json base_kwargs_;  // enable_thinking = false and the server's defaults
  const PromptEnds ends_;
  const LabelSet labels_;
  std::array<std::optional<PromptFrame>, 2>
      frames_;  // without and with a system message; set by Create
  mutable BlockCache blocks_;
};

}  // namespace sysone
