// The steps of encoding in the library's order: added tokens in the raw text, normalisation, added tokens in the normal
// text, cuts into words, byte pair encoding.
// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "model/added_tokens.h"
#include "model/bpe.h"
#include "model/byte_level.h"
#include "model/nfc.h"
#include "model/tokenizer_spec.h"

namespace sysone {
namespace {

// What a thread needs while it encodes. No state passes from one call to the next.
struct Scratch {
  NfcScratch nfc;
  BpeScratch bpe;
  std::string prefixed;
};

struct Cuts {
  DigitSplit digits;
  SplitPattern pattern;
  bool add_prefix_space;
};

// Calls emit for the parts of `text` between digits and for the digits (one by one, or in runs).
template <class Emit>
void SplitDigits(DigitSplit digits, std::string_view text, Emit&& emit) {
  if (digits == DigitSplit::kNone) return emit(text);
  const CharClasses& classes = CharClasses::Get();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const internal::ClassifiedChar first = internal::ReadChar(classes, at, end);
    const char* part_end = first.next;
    if (!(first.bits & kDigit))
      part_end = internal::SkipRun<kDigit, false>(classes, part_end, end);
    else if (digits == DigitSplit::kRuns)
      part_end = internal::SkipRun<kDigit, true>(classes, part_end, end);
    emit(std::string_view(at, static_cast<size_t>(part_end - at)));
    at = part_end;
  }
}

bool IsAsciiAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(BpeModel model, AddedTokenFinder raw, AddedTokenFinder normalized, bool nfc,
               Cuts cuts, std::string chars_after_cuts)
      : model_(std::move(model)),
        raw_(std::move(raw)),
        normalized_(std::move(normalized)),
        nfc_(nfc),
        cuts_(cuts),
        chars_after_cuts_(std::move(chars_after_cuts)) {}

  void Encode(std::string_view text, std::vector<TokenId>& out) const override {
    thread_local Scratch scratch;
    const auto on_token = [&out](TokenId id) { out.push_back(id); };
    raw_.Split(
        text,
        [&](std::string_view piece) {
          if (nfc_) piece = NormalizeNfc(piece, scratch.nfc);
          normalized_.Split(
              piece, [&](std::string_view part) { EncodeText(part, scratch, out); }, on_token);
        },
        on_token);
  }

  // What follows decides how white space before it is cut (the patterns look ahead), so `next` is encoded along and its
  // tokens are taken off again.
  bool EncodeBefore(std::string_view text, char next, std::vector<TokenId>& out) const override {
    if (!text.ends_with('\n') || chars_after_cuts_.find(next) == std::string::npos) return false;
    thread_local std::string joined;
    joined.assign(text).push_back(next);
    const size_t before = out.size();
    Encode(joined, out);
    const size_t whole = out.size();
    Encode(std::string_view(&next, 1), out);
    const size_t of_next = out.size() - whole;
    SYSONE_CHECK(whole >= before + of_next, "the text behind a line feed has no tokens of its own");
    out.resize(whole - of_next);
    return true;
  }

  std::string Decode(const TokenId* ids, size_t count) const override {
    std::string text;
    for (size_t i = 0; i < count; ++i)
      if (ids[i] >= 0 && ids[i] < vocab_size()) text += texts_[static_cast<size_t>(ids[i])];
    return text;
  }

  std::optional<TokenId> TokenToId(std::string_view token) const override {
    const auto literal = literals_.find(std::string(token));
    if (literal != literals_.end()) return literal->second;
    return model_.Find(token);
  }

  int32_t vocab_size() const override { return static_cast<int32_t>(texts_.size()); }

  // While building: the text of an id, and tokens that are found by their text rather than by their bytes.
  void SetText(TokenId id, std::string_view text) {
    if (id >= vocab_size()) texts_.resize(static_cast<size_t>(id) + 1);
    texts_[static_cast<size_t>(id)] = text;
  }
  void SetLiteral(std::string_view text, TokenId id) { literals_[std::string(text)] = id; }

 private:
  void EncodeText(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
    SplitDigits(cuts_.digits, text, [&](std::string_view part) {
      if (cuts_.add_prefix_space && part[0] != ' ') {
        scratch.prefixed.assign(1, ' ').append(part);
        part = scratch.prefixed;
      }
      SplitWords(cuts_.pattern, part,
                 [&](std::string_view word) { model_.Encode(word, scratch.bpe, out); });
    });
  }

  BpeModel model_;
  AddedTokenFinder raw_;
  AddedTokenFinder normalized_;
  bool nfc_;
  Cuts cuts_;
  std::string chars_after_cuts_;    // see CharsAfterCuts
  std::vector<std::string> texts_;  // by id; empty where the vocabulary has a gap
  std::unordered_map<std::string, TokenId> literals_;
};

// Gives the added tokens their ids by the library's rule: that of the vocabulary, else the next free one; the id that
// the file states is not looked at. Repeated tokens are dropped, the last one's flags stay.
std::vector<AddedToken> NumberAddedTokens(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, TokenId> vocabulary(spec.vocab.begin(), spec.vocab.end());
  const auto vocabulary_size = static_cast<TokenId>(spec.vocab.size());
  std::unordered_map<std::string_view, size_t> places;
  std::vector<AddedToken> numbered;
  TokenId largest = -1;
  for (const AddedToken& token : spec.added_tokens) {
    if (token.content.empty()) continue;
    const auto [place, added] = places.emplace(token.content, numbered.size());
    if (!added) {
      const TokenId id = numbered[place->second].id;
      numbered[place->second] = token;
      numbered[place->second].id = id;
      continue;
    }
    const auto known = vocabulary.find(token.content);
    numbered.push_back(token);
    numbered.back().id =
        known != vocabulary.end() ? known->second : std::max(largest + 1, vocabulary_size);
    largest = std::max(largest, numbered.back().id);
  }
  return numbered;
}

// The ASCII letters and digits before which a line feed always ends what is encoded together (Tokenizer::EncodeBefore):
// - every pattern but kWhole ends a word there: none has an alternative in which a line feed comes before a letter or a
//   number. What they look ahead at is the kind of the next character, which EncodeBefore has at hand;
// - normal form C joins neither of them with what stands before;
// - no added token reaches over the border, begins behind it, or judges by what lies beyond it.
std::string CharsAfterCuts(const TokenizerSpec& spec, const std::vector<AddedToken>& added) {
  std::string chars;
  if (spec.pattern == SplitPattern::kWhole || spec.add_prefix_space) return chars;
  for (char c = '0'; c <= 'z'; ++c)
    if (IsAsciiAlnum(c)) chars += c;
  for (const AddedToken& token : added) {
    const std::string& text = token.content;
    if (token.single_word && text.back() == '\n') return "";
    for (size_t at = 0; at < text.size(); ++at)
      if (at == 0 || text[at - 1] == '\n') std::erase(chars, text[at]);
  }
  return chars;
}

AddedTokenFinder MakeFinder(const std::vector<AddedToken>& tokens, bool normalized, bool nfc) {
  std::vector<AddedToken> chosen;
  std::vector<std::string> patterns;
  NfcScratch scratch;
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    chosen.push_back(token);
    patterns.emplace_back(normalized && nfc ? NormalizeNfc(token.content, scratch) : token.content);
  }
  return AddedTokenFinder(std::move(chosen), patterns);
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> BuildTokenizer(TokenizerSpec spec) {
  SYSONE_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Build(spec));
  const std::vector<AddedToken> added = NumberAddedTokens(spec);
  auto tokenizer = std::make_shared<BpeTokenizer>(
      std::move(model), MakeFinder(added, false, spec.nfc), MakeFinder(added, true, spec.nfc),
      spec.nfc, Cuts{spec.digits, spec.pattern, spec.add_prefix_space},
      CharsAfterCuts(spec, added));
  std::string bytes;
  for (const auto& [spelling, id] : spec.vocab) {
    const bool spelt = BytesFromSpelling(spelling, bytes);
    tokenizer->SetText(id, spelt ? std::string_view(bytes) : spelling);
    if (!spelt) tokenizer->SetLiteral(spelling, id);
  }
  for (const AddedToken& token : added) {
    tokenizer->SetText(token.id, token.content);
    tokenizer->SetLiteral(token.content, token.id);
  }
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

}  // namespace sysone
