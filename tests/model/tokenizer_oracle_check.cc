// Reads texts and their ids, as tokenizer_oracle.py wrote them, and compares our tokenizer's ids with them.
// usage: tokenizer_oracle_check TOKENIZER.json|FILE.gguf CASES COUNT
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/gguf.h"
#include "model/tokenizer.h"

namespace sysone {
namespace {

using Clock = std::chrono::steady_clock;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  SYSONE_CHECK(file.good(), "cannot open %s", path.c_str());
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<std::shared_ptr<const Tokenizer>> Load(const std::string& path) {
  if (!path.ends_with(".gguf")) return Tokenizer::FromHfJson(ReadFile(path));
  SYSONE_ASSIGN_OR_RETURN(auto file, GgufFile::Open(path));
  return Tokenizer::FromGguf(*file);
}

uint32_t ReadCount(const std::string& cases, size_t& at) {
  SYSONE_CHECK(at + 4 <= cases.size(), "the file of cases ends early, at byte %zu", at);
  uint32_t count;
  std::memcpy(&count, cases.data() + at, 4);
  at += 4;
  return count;
}

void Show(const char* what, const std::vector<TokenId>& ids) {
  std::printf("  %s:", what);
  for (const TokenId id : ids) std::printf(" %d", id);
  std::printf("\n");
}

// Two texts encoded apart must give what they give together (EncodeBefore): texts of the corpus that follow each other, with a
// line feed between them, where the second begins as is asked for. Returns how many pairs differ.
size_t CheckParts(const Tokenizer& tokenizer, const std::vector<std::string_view>& texts) {
  size_t wrong = 0, checked = 0;
  std::vector<TokenId> parts, whole;
  for (size_t i = 1; i < texts.size(); ++i) {
    const std::string first = std::string(texts[i - 1]) + "\n";
    // Most texts begin with something else: a letter or a digit is put before them, so that every text is a second one.
    const char next = "QaZ0x7"[i % 6];
    const std::string second = next + std::string(texts[i]);
    parts.clear();
    if (!tokenizer.EncodeBefore(first, next, parts)) continue;
    tokenizer.Encode(second, parts);
    whole.clear();
    tokenizer.Encode(first + second, whole);
    ++checked;
    if (parts == whole || ++wrong > 10) continue;
    std::string shown;
    AppendJsonString(shown, first + second);
    std::printf("encoded in parts differs for %s\n", shown.c_str());
    Show("whole   ", whole);
    Show("in parts", parts);
  }
  std::printf("  %zu pairs encoded in parts\n", checked);
  return wrong;
}

int Run(const char* tokenizer_path, const char* cases_path, size_t expected_count) {
  const auto load_start = Clock::now();
  const auto tokenizer = Load(tokenizer_path);
  if (!tokenizer.ok()) {
    std::printf("%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  const double load_s = std::chrono::duration<double>(Clock::now() - load_start).count();
  const std::string cases = ReadFile(cases_path);
  size_t at = 0;
  const uint32_t count = ReadCount(cases, at);
  size_t wrong = 0, tokens = 0;
  Clock::duration spent{};
  std::vector<TokenId> ids;
  std::vector<std::string_view> texts;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t length = ReadCount(cases, at);
    const std::string_view text = std::string_view(cases).substr(at, length);
    at += length;
    texts.push_back(text);
    std::vector<TokenId> expected(ReadCount(cases, at));
    SYSONE_CHECK(at + 4 * expected.size() <= cases.size(),
                 "the file of cases ends early, at byte %zu", at);
    std::memcpy(expected.data(), cases.data() + at, 4 * expected.size());
    at += 4 * expected.size();
    ids.clear();
    const auto start = Clock::now();
    (*tokenizer)->Encode(text, ids);
    spent += Clock::now() - start;
    tokens += ids.size();
    if (ids == expected) continue;
    if (++wrong > 10) continue;
    std::string shown;
    AppendJsonString(shown, text);
    std::printf("different ids for %s\n", shown.c_str());
    Show("library", expected);
    Show("ours   ", ids);
  }
  std::printf("  loaded in %.2f s; %u texts, %zu tokens, %.0f ns a token; %zu texts differ\n",
              load_s, count, tokens,
              std::chrono::duration<double, std::nano>(spent).count() / static_cast<double>(tokens),
              wrong);
  wrong += CheckParts(**tokenizer, texts);
  return wrong == 0 && count == expected_count && at == cases.size() ? 0 : 1;
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: tokenizer_oracle_check TOKENIZER.json|FILE.gguf CASES COUNT\n");
    return 2;
  }
  return sysone::Run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10));
}
