// What the time of a pass goes to, by operation of the backend. Not part of the tests.
//
//   cmake --build build/release --target pass_profile
//   build/release/tests_bin/pass_profile MODEL_FILE DTYPE THREADS LENGTH…
//
// One decision over made-up tokens for each length; a line an operation: milliseconds and share, medians over kRounds passes
// after a first one that does not count. "between" is the time outside all operations.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "model/model_files.h"
#include "tests/bench/timed_backend.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

constexpr int kRounds = 5;

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fprintf(stderr, "pass_profile: %s\n", result.status().message().c_str());
    exit(1);
  }
  return std::move(result).value();
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

void Profile(TimedBackend& backend, Decoder& decoder, int32_t vocab, int32_t length) {
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>((i * 7919 + 31) % static_cast<size_t>(vocab));
  const std::vector<TokenId> labels{32, 33};
  const JobTokens job{{}, {{tokens, labels}}, false};
  std::vector<float> logits(labels.size());
  std::map<std::string, std::vector<double>> times;
  for (int round = -1; round < kRounds; ++round) {
    backend.Clear();
    const auto begin = std::chrono::steady_clock::now();
    Pass pass;
    pass.Build(std::vector<PassItem>{{&job, 0, 1}});
    decoder.Forward(pass, logits, {});
    const double total =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (round < 0) continue;
    double between = total;
    for (const auto& [name, ms] : backend.times()) {
      times[name].push_back(ms);
      between -= ms;
    }
    times["between"].push_back(between);
    times["all"].push_back(total);
  }
  const double all = Median(times["all"]);
  printf("%d tokens\n", length);
  for (const auto& [name, values] : times)
    printf("  %-14s %9.3f ms %6.2f %%\n", name.c_str(), Median(values), 100 * Median(values) / all);
  fflush(stdout);
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  using namespace sysone;
  if (argc < 5) {
    fputs("usage: pass_profile MODEL_FILE DTYPE THREADS LENGTH…\n", stderr);
    return 2;
  }
  const auto cpu =
      Must(MakeBackend({.name = "cpu", .dtype = argv[2], .threads = std::atoi(argv[3])}));
  TimedBackend backend(*cpu);
  const ModelWeights weights = Must(OpenModelWeights(argv[1]));
  std::vector<int32_t> lengths;
  for (int i = 4; i < argc; ++i) lengths.push_back(std::max(1, std::atoi(argv[i])));
  DecoderLimits limits;
  limits.max_rows = limits.max_positions = *std::ranges::max_element(lengths);
  limits.max_reads = 1;
  const auto decoder =
      Must(Decoder::Load(backend, weights.config, weights.tensors, limits, [](double) {}));
  printf("%s\n", backend.Describe().c_str());
  for (const int32_t length : lengths) Profile(backend, *decoder, weights.config.vocab, length);
  return 0;
}
