// Times our tokenizer for scripts/bench/tokenizer.py: for every line on standard input, encodes each text once and prints
// the mean nanoseconds of processor time a text and the number of tokens of all texts.
// usage: tokenizer_speed TOKENIZER.json|FILE.gguf TEXTS (texts end with a zero byte)
// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/tokenizer.h"

namespace sysone {
namespace {

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

// Of this thread alone: what else the machine does is not counted.
double ProcessorNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

int Run(const char* tokenizer_path, const char* texts_path) {
  const auto tokenizer = Load(tokenizer_path);
  SYSONE_CHECK(tokenizer.ok(), "%s", tokenizer.status().message().c_str());
  const std::string bytes = ReadFile(texts_path);
  std::vector<std::string_view> texts;
  for (size_t at = 0; at < bytes.size(); at += texts.back().size() + 1)
    texts.push_back(std::string_view(bytes).substr(at, bytes.find('\0', at) - at));
  std::vector<TokenId> ids;
  while (std::getchar() != EOF) {
    size_t tokens = 0;
    const double start = ProcessorNanoseconds();
    for (const std::string_view text : texts) {
      ids.clear();
      (*tokenizer)->Encode(text, ids);
      tokens += ids.size();
    }
    const double spent = ProcessorNanoseconds() - start;
    std::printf("%.0f %zu\n", spent / static_cast<double>(texts.size()), tokens);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_speed TOKENIZER.json|FILE.gguf TEXTS\n");
    return 2;
  }
  return sysone::Run(argv[1], argv[2]);
}
