// Reads a tokenizer from GGUF metadata. GGUF names the splitting by one word; what that word means beside the split
// (normalisation, whether merges are ignored) is what the family's tokenizer.json says.
// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "model/tokenizer_spec.h"

namespace sysone {
namespace {

struct Family {
  std::string_view pre;
  SplitPattern pattern;
  DigitSplit digits;
  bool nfc;
  bool ignore_merges;
};

constexpr Family kFamilies[] = {
    {"gpt-2", SplitPattern::kGpt2, DigitSplit::kNone, false, false},
    {"smollm", SplitPattern::kGpt2, DigitSplit::kEach, false, false},
    {"llama-bpe", SplitPattern::kLlama3, DigitSplit::kNone, false, true},
    {"llama3", SplitPattern::kLlama3, DigitSplit::kNone, false, true},
    {"llama-v3", SplitPattern::kLlama3, DigitSplit::kNone, false, true},
    {"lfm2", SplitPattern::kLlama3, DigitSplit::kNone, false, true},
    {"qwen2", SplitPattern::kQwen2, DigitSplit::kNone, true, false},
    {"qwen35", SplitPattern::kQwen35, DigitSplit::kNone, true, false},
};

// Values of tokenizer.ggml.token_type.
enum : int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

Status ReadFamily(const GgufFile& file, TokenizerSpec& spec) {
  const std::string model(file.String("tokenizer.ggml.model").value_or("(absent)"));
  if (model != "gpt2")
    return Error(Code::kUnsupported,
                 "tokenizer.ggml.model \"%s\" is not supported (only gpt2: byte-level BPE)",
                 model.c_str());
  const std::string pre(file.String("tokenizer.ggml.pre").value_or("(absent)"));
  for (const Family& family : kFamilies) {
    if (family.pre != pre) continue;
    spec.pattern = family.pattern;
    spec.digits = family.digits;
    spec.nfc = family.nfc;
    spec.ignore_merges = family.ignore_merges;
    spec.add_prefix_space = file.Bool("tokenizer.ggml.add_space_prefix").value_or(false);
    if (!spec.add_prefix_space || family.pattern == SplitPattern::kGpt2) return {};
    return Error(Code::kUnsupported,
                 "tokenizer.ggml.add_space_prefix with tokenizer.ggml.pre \"%s\" is not supported",
                 pre.c_str());
  }
  return Error(Code::kUnsupported, "tokenizer.ggml.pre \"%s\" is not supported", pre.c_str());
}

Status ReadTokens(const std::vector<std::string_view>& tokens, const std::vector<int64_t>& types,
                  TokenizerSpec& spec) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    switch (types.empty() ? kNormal : types[i]) {
      case kNormal:
      case kByte:
        spec.vocab.emplace_back(tokens[i], id);
        break;
      case kUnknown:
      case kControl:
      case kUserDefined:
        // The vocabulary holds them too: that is where they get their ids from.
        spec.vocab.emplace_back(tokens[i], id);
        spec.added_tokens.push_back({.content = std::string(tokens[i])});
        break;
      case kUnused:
        break;  // padding of the embedding table
      default:
        return Error(Code::kCorrupt, "tokenizer.ggml.token_type[%zu] is %lld", i,
                     static_cast<long long>(types[i]));
    }
  }
  return {};
}

Status ReadMerges(const std::vector<std::string_view>& merges, TokenizerSpec& spec) {
  spec.merges.reserve(merges.size());
  for (const std::string_view merge : merges) {
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos)
      return Error(Code::kCorrupt, "tokenizer.ggml.merges[%zu] has no space", spec.merges.size());
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(const GgufFile& file) {
  TokenizerSpec spec;
  const auto in_file = [&file](const Status& status) { return status.WithContext(file.path()); };
  if (Status status = ReadFamily(file, spec); !status.ok()) return in_file(status);
  const auto tokens = file.Strings("tokenizer.ggml.tokens");
  const auto merges = file.Strings("tokenizer.ggml.merges");
  const auto types = file.Ints("tokenizer.ggml.token_type").value_or(std::vector<int64_t>());
  if (!tokens || !merges)
    return in_file(Error(Code::kCorrupt, "%s is missing",
                         tokens ? "tokenizer.ggml.merges" : "tokenizer.ggml.tokens"));
  if (!types.empty() && types.size() != tokens->size())
    return in_file(Error(Code::kCorrupt, "tokenizer.ggml.token_type has %zu entries for %zu tokens",
                         types.size(), tokens->size()));
  if (Status status = ReadTokens(*tokens, types, spec); !status.ok()) return in_file(status);
  if (Status status = ReadMerges(*merges, spec); !status.ok()) return in_file(status);
  auto tokenizer = BuildTokenizer(std::move(spec));
  if (!tokenizer.ok()) return in_file(tokenizer.status());
  return tokenizer;
}

}  // namespace sysone
