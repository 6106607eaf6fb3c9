// Reads a tokenizer.json of the `tokenizers` library. What we do not implement is refused by name: a tokenizer that is
// nearly right gives wrong answers without a word.
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "model/tokenizer.h"
#include "model/tokenizer_spec.h"

namespace sysone {
namespace {

Status Unsupported(const char* part, const std::string& value) {
  return Error(Code::kUnsupported, "tokenizer.json: %s %s is not supported", part, value.c_str());
}
Status Corrupt(const char* what) { return Error(Code::kCorrupt, "tokenizer.json: %s", what); }

// The string member `key`, or "" when it is absent or something else.
std::string_view StringMember(const Json& object, std::string_view key) {
  const Json* member = object.Find(key);
  return member != nullptr && member->is_string() ? std::string_view(member->string())
                                                  : std::string_view();
}

bool BoolMember(const Json& object, std::string_view key, bool otherwise) {
  const Json* member = object.Find(key);
  return member != nullptr && member->is_bool() ? member->boolean() : otherwise;
}

// The parts of a Sequence under `list_key`, or the part itself; none for null.
std::vector<const Json*> Steps(const Json* part, std::string_view list_key) {
  std::vector<const Json*> steps;
  if (part == nullptr || part->is_null()) return steps;
  const Json* list = StringMember(*part, "type") == "Sequence" ? part->Find(list_key) : nullptr;
  if (list == nullptr || !list->is_array()) return {part};
  for (const Json& step : list->items()) steps.push_back(&step);
  return steps;
}

Status ReadNormalizer(const Json& root, TokenizerSpec& spec) {
  for (const Json* step : Steps(root.Find("normalizer"), "normalizers")) {
    if (StringMember(*step, "type") != "NFC") return Unsupported("normalizer", step->Dump());
    spec.nfc = true;
  }
  return {};
}

Status ReadSplit(const Json& step, TokenizerSpec& spec) {
  const Json* pattern = step.Find("pattern");
  const Json* regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
  const auto known = regex != nullptr && regex->is_string() ? SplitPatternFromRegex(regex->string())
                                                            : std::nullopt;
  const bool isolated =
      StringMember(step, "behavior") == "Isolated" && !BoolMember(step, "invert", false);
  if (!known || !isolated) return Unsupported("pre_tokenizer", step.Dump());
  spec.pattern = *known;
  return {};
}

// Accepts the steps [Digits] [Split] ByteLevel, where ByteLevel may do the split itself.
Status ReadPreTokenizer(const Json& root, TokenizerSpec& spec) {
  bool byte_level = false;
  for (const Json* step : Steps(root.Find("pre_tokenizer"), "pretokenizers")) {
    const std::string_view type = StringMember(*step, "type");
    const bool split = spec.pattern != SplitPattern::kWhole;
    if (type == "Digits" && !split && !byte_level && spec.digits == DigitSplit::kNone) {
      spec.digits =
          BoolMember(*step, "individual_digits", false) ? DigitSplit::kEach : DigitSplit::kRuns;
    } else if (type == "Split" && !split && !byte_level) {
      SYSONE_RETURN_IF_ERROR(ReadSplit(*step, spec));
    } else if (type == "ByteLevel" && !byte_level) {
      byte_level = true;
      spec.add_prefix_space = BoolMember(*step, "add_prefix_space", true);
      const bool use_regex = BoolMember(*step, "use_regex", true);
      if (split && (spec.add_prefix_space || use_regex))
        return Unsupported("pre_tokenizer", "Split before " + step->Dump());
      if (use_regex) spec.pattern = SplitPattern::kGpt2;
    } else {
      return Unsupported("pre_tokenizer", step->Dump());
    }
  }
  if (!byte_level) return Unsupported("pre_tokenizer", "without a ByteLevel step");
  return {};
}

Status ReadVocabulary(const Json& model, TokenizerSpec& spec) {
  const Json* vocab = model.Find("vocab");
  if (vocab == nullptr || !vocab->is_object())
    return Corrupt("model.vocab is missing or no object");
  spec.vocab.reserve(vocab->members().size());
  for (const auto& [token, id] : vocab->members()) {
    const auto value = id.AsInt64();
    if (!value || *value < 0 || *value > INT32_MAX)
      return Error(Code::kCorrupt, "tokenizer.json: model.vocab[\"%s\"] is no token id",
                   token.c_str());
    spec.vocab.emplace_back(token, static_cast<TokenId>(*value));
  }
  return {};
}

Status ReadMerges(const Json& model, TokenizerSpec& spec) {
  const Json* merges = model.Find("merges");
  if (merges == nullptr || !merges->is_array())
    return Corrupt("model.merges is missing or no list");
  spec.merges.reserve(merges->items().size());
  for (const Json& merge : merges->items()) {
    if (merge.is_string()) {  // older files: "left right"
      const std::string_view text = merge.string();
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
        return Corrupt("a merge is not two tokens with a space between");
      spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (merge.is_array() && merge.items().size() == 2 && merge.items()[0].is_string() &&
               merge.items()[1].is_string()) {
      spec.merges.emplace_back(merge.items()[0].string(), merge.items()[1].string());
    } else {
      return Corrupt("a merge is not two tokens");
    }
  }
  return {};
}

Status ReadModel(const Json& root, TokenizerSpec& spec) {
  const Json* model = root.Find("model");
  if (model == nullptr || !model->is_object()) return Corrupt("model is missing or no object");
  const Json* type = model->Find("type");
  if (type != nullptr && StringMember(*model, "type") != "BPE")
    return Unsupported("model.type", type->Dump());
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!StringMember(*model, affix).empty())
      return Unsupported((std::string("model.") + affix).c_str(), model->Find(affix)->Dump());
  const Json* dropout = model->Find("dropout");
  if (dropout != nullptr && !dropout->is_null() && dropout->AsDouble() != 0.0)
    return Unsupported("model.dropout", dropout->Dump());
  SYSONE_RETURN_IF_ERROR(ReadVocabulary(*model, spec));
  SYSONE_RETURN_IF_ERROR(ReadMerges(*model, spec));
  const Json* unknown = model->Find("unk_token");
  if (unknown != nullptr && unknown->is_string()) spec.unk_token = unknown->string();
  spec.fuse_unk = BoolMember(*model, "fuse_unk", false);
  spec.byte_fallback = BoolMember(*model, "byte_fallback", false);
  spec.ignore_merges = BoolMember(*model, "ignore_merges", false);
  return {};
}

Status ReadAddedTokens(const Json& root, TokenizerSpec& spec) {
  const Json* tokens = root.Find("added_tokens");
  if (tokens == nullptr || tokens->is_null()) return {};
  if (!tokens->is_array()) return Corrupt("added_tokens is no list");
  for (const Json& token : tokens->items()) {
    const Json* content = token.Find("content");
    if (content == nullptr || !content->is_string())
      return Corrupt("an added token has no content");
    AddedToken added;
    added.content = content->string();
    added.single_word = BoolMember(token, "single_word", false);
    added.lstrip = BoolMember(token, "lstrip", false);
    added.rstrip = BoolMember(token, "rstrip", false);
    added.normalized = BoolMember(token, "normalized", !BoolMember(token, "special", false));
    spec.added_tokens.push_back(std::move(added));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromHfJson(std::string_view tokenizer_json) {
  SYSONE_ASSIGN_OR_RETURN(const Json root, Json::Parse(tokenizer_json));
  if (!root.is_object()) return Corrupt("not a JSON object");
  TokenizerSpec spec;
  SYSONE_RETURN_IF_ERROR(ReadNormalizer(root, spec));
  SYSONE_RETURN_IF_ERROR(ReadPreTokenizer(root, spec));
  SYSONE_RETURN_IF_ERROR(ReadModel(root, spec));
  SYSONE_RETURN_IF_ERROR(ReadAddedTokens(root, spec));
  auto tokenizer = BuildTokenizer(std::move(spec));
  if (!tokenizer.ok()) return tokenizer.status().WithContext("tokenizer.json");
  return tokenizer;
}

}  // namespace sysone
