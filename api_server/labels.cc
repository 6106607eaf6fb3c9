// SPDX-License-Identifier: Apache-2.0
#include "api_server/labels.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace sysone {
namespace {

constexpr size_t kMostOptions = 255;  // a choice never has more, so the pool stops there

// Encodes labels behind one prompt ending and tells whether each is one token of its own there.
class Prober {
 public:
  Prober(const Tokenizer& tokenizer, const std::string& end) : tokenizer_(tokenizer), end_(end) {
    tokenizer_.Encode(end_, end_ids_);
  }

  // The label's token, or what stands in the way.
  Result<TokenId> Resolve(const std::string& text) const {
    std::vector<TokenId> ids;
    tokenizer_.Encode(end_ + text, ids);
    if (ids.size() <= end_ids_.size() || !std::equal(end_ids_.begin(), end_ids_.end(), ids.begin()))
      return Error(Code::kUnsupported,
                   "label '%s' merges with the end of the prompt, so it is no token of its own",
                   text.c_str());
    if (ids.size() != end_ids_.size() + 1)
      return Error(Code::kUnsupported, "label '%s' is %zu tokens after the prompt, not one",
                   text.c_str(), ids.size() - end_ids_.size());
    return ids.back();
  }

 private:
  const Tokenizer& tokenizer_;
  const std::string& end_;
  std::vector<TokenId> end_ids_;
};

// Labels that must all be there, all different.
Result<std::vector<Label>> ResolveAll(const Prober& prober, const std::vector<std::string>& texts) {
  std::vector<Label> labels;
  std::unordered_set<TokenId> seen;
  for (const std::string& text : texts) {
    SYSONE_ASSIGN_OR_RETURN(const TokenId id, prober.Resolve(text));
    if (!seen.insert(id).second)
      return Error(Code::kUnsupported, "label '%s' is the same token as another label",
                   text.c_str());
    labels.push_back({text, id});
  }
  return labels;
}

std::vector<std::string> Singles(char first, char last) {
  std::vector<std::string> texts;
  for (char c = first; c <= last; ++c) texts.emplace_back(1, c);
  return texts;
}

std::vector<std::string> Pairs(std::pair<char, char> left, std::pair<char, char> right) {
  std::vector<std::string> texts;
  for (char a = left.first; a <= left.second; ++a)
    for (char b = right.first; b <= right.second; ++b) texts.push_back({a, b});
  return texts;
}

// What may follow A–Z in a long list, in this order.
std::vector<std::string> PoolTexts() {
  constexpr std::pair<char, char> kUpper{'A', 'Z'}, kLower{'a', 'z'}, kDigit{'0', '9'};
  std::vector<std::string> texts = Singles('a', 'z');
  for (const auto& more : {Pairs(kDigit, kDigit), Pairs(kUpper, kUpper), Pairs(kLower, kLower),
                           Pairs(kUpper, kLower), Pairs(kUpper, kDigit)})
    texts.insert(texts.end(), more.begin(), more.end());
  return texts;
}

}  // namespace

Result<LabelSet> LabelSet::Resolve(const Tokenizer& tokenizer, const PromptEnds& ends) {
  LabelSet set;
  const Prober choice(tokenizer, ends.choice);
  SYSONE_ASSIGN_OR_RETURN(set.pool_, ResolveAll(choice, Singles('A', 'Z')));
  SYSONE_ASSIGN_OR_RETURN(set.noul_, ResolveAll(Prober(tokenizer, ends.noul), {"yes", "no"}));
  SYSONE_ASSIGN_OR_RETURN(set.digits_,
                          ResolveAll(Prober(tokenizer, ends.score), Singles('0', '9')));

  std::unordered_set<TokenId> seen;
  for (const Label& label : set.pool_) seen.insert(label.id);
  for (const std::string& text : PoolTexts()) {
    if (set.pool_.size() == kMostOptions) break;
    const Result<TokenId> id = choice.Resolve(text);
    if (id.ok() && seen.insert(*id).second) set.pool_.push_back({text, *id});
  }
  return set;
}

std::span<const Label> LabelSet::For(QuestionType type, size_t count) const {
  const std::vector<Label>& labels = type == QuestionType::kChoice ? pool_
                                     : type == QuestionType::kNoul ? noul_
                                                                   : digits_;
  if (count > labels.size()) return {};
  return std::span(labels).first(count);
}

}  // namespace sysone
