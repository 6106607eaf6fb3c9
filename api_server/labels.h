// The answers that a next-token model can give, as single tokens: letters, yes and no, digits, and
// a pool of further labels for long lists of options. Resolved once, at start, against the
// tokenizer and the prompt's real ending.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api_server/decision_request.h"
#include "base/status.h"
#include "model/tokenizer.h"

namespace sysone {

// A text that the model answers with, and its token.
struct Label {
  std::string text;
  TokenId id = -1;
};

// Ends of the prompts as the model reads them: everything from the fixed closing line of a question
// to the end of the generation prompt. Labels are resolved behind them, so that no merge across the
// border can surprise us.
struct PromptEnds {
  std::string choice;
  std::string noul;
  std::string score;
};

// Immutable; any thread may read.
class LabelSet {
 public:
  // kUnsupported, naming the label and the tokens that came instead, when A–Z, yes, no or 0–9 is
  // not exactly one token that leaves the prompt's own tokens as they are, or when two of them are
  // the same token.
  static Result<LabelSet> Resolve(const Tokenizer& tokenizer, const PromptEnds& ends);

  // Labels of a question with `count` options, in option order: A–Z; beyond 26 the first `count` of
  // the pool (A–Z, a–z, 00–99, AA–ZZ, then further pairs; always the same for one tokenizer); yes,
  // no; 0–9. Empty when a choice has more options than max_options().
  std::span<const Label> For(QuestionType type, size_t count) const;

  // Most options that a choice may have with this tokenizer.
  size_t max_options() const { return pool_.size(); }

 private:
  std::vector<Label> pool_;  // A–Z first
  std::vector<Label> noul_;
  std::vector<Label> digits_;
};

}  // namespace sysone
