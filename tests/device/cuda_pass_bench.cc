// Whole passes on the device: from tokens on the host to the logits of two labels there, nothing cached. scripts/gpu_check runs it.
//
//   cuda_pass_bench MODEL DTYPE ROUNDS TOKENS…      MODEL: a shape of tests/bench/made_model.h, with random weights
//
// Prints JSON lines: the device with its measured rates; then, for each number of tokens, medians and 99th percentiles with recorded
// passes and with launches one by one, in turns. Aborts where both ways, or two passes of one way, give different logits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/bench/made_model.h"
#include "tests/device/cuda_probes.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

constexpr int kWarmUp = 5;

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fprintf(stderr, "cuda_pass_bench: %s\n", result.status().message().c_str());
    exit(1);
  }
  return std::move(result).value();
}

// A decoder over a backend of its own.
class Side {
 public:
  Side(const MadeModel& model, const std::string& dtype, bool graphs, int32_t longest)
      : backend_(Must(MakeCudaBackend({.dtype = dtype, .graphs = graphs}))) {
    DecoderLimits limits;
    limits.max_rows = limits.max_positions = longest;
    limits.max_reads = 1;
    decoder_ = Must(Decoder::Load(*backend_, model.config, model.tensors, limits, [](double) {}));
  }

  // Milliseconds of one pass; its logits in `logits`.
  double Run(const std::vector<TokenId>& tokens, std::vector<float>& logits) {
    const JobTokens job{{}, {{tokens, labels_}}, false};
    const auto begin = std::chrono::steady_clock::now();
    pass_.Build(std::vector<PassItem>{{&job, 0, 1}});
    decoder_->Forward(pass_, logits, {});
    const std::chrono::duration<double, std::milli> elapsed =
        std::chrono::steady_clock::now() - begin;
    return elapsed.count();
  }
  std::string Describe() const { return backend_->Describe(); }

 private:
  const std::vector<TokenId> labels_{32, 33};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  Pass pass_;
};

struct Times {
  std::vector<double> all;
  std::vector<float> logits;

  void Add(Side& side, const std::vector<TokenId>& tokens) {
    std::vector<float> now(2);
    all.push_back(side.Run(tokens, now));
    for (const float logit : now) SYSONE_CHECK(std::isfinite(logit), "a logit is no number");
    if (logits.empty()) logits = now;
    SYSONE_CHECK(now == logits, "two equal passes gave different logits");
  }
  double At(double share) {
    std::ranges::sort(all);
    const auto last = static_cast<double>(all.size() - 1);
    return all[static_cast<size_t>(std::lround(share * last))];
  }
};

void Measure(const std::string& name, const std::string& dtype, int rounds,
             const std::vector<int32_t>& lengths) {
  const MadeModel model = Must(MakeModel(name));
  const int32_t longest = *std::ranges::max_element(lengths);
  // One backend a device and process: the two ways follow each other.
  std::vector<Times> results[2];
  for (const bool graphs : {true, false}) {
    Side side(model, dtype, graphs, longest);
    if (graphs) printf("{\"backend\": \"%s\"}\n", side.Describe().c_str());
    for (const int32_t length : lengths) {
      std::vector<TokenId> tokens(static_cast<size_t>(length));
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<TokenId>((i * 7919 + 31) % static_cast<size_t>(model.config.vocab));
      Times times;
      for (int i = 0; i < kWarmUp; ++i) times.Add(side, tokens);
      times.all.clear();
      for (int i = 0; i < rounds; ++i) times.Add(side, tokens);
      results[graphs ? 0 : 1].push_back(std::move(times));
    }
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    Times &recorded = results[0][i], &single = results[1][i];
    SYSONE_CHECK(recorded.logits == single.logits,
                 "a recorded pass gave other logits than single launches");
    printf("{\"model\": \"%s\", \"dtype\": \"%s\", \"tokens\": %d, \"rounds\": %d, ", name.c_str(),
           dtype.c_str(), lengths[i], rounds);
    printf(
        "\"recorded_ms\": %.4f, \"recorded_p99_ms\": %.4f, \"single_ms\": %.4f, "
        "\"single_p99_ms\": %.4f}\n",
        recorded.At(0.5), recorded.At(0.99), single.At(0.5), single.At(0.99));
    fflush(stdout);
  }
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  if (argc < 5) {
    fputs("usage: cuda_pass_bench MODEL DTYPE ROUNDS TOKENS…\n", stderr);
    return 2;
  }
  std::vector<int32_t> lengths;
  for (int i = 4; i < argc; ++i) lengths.push_back(std::max(1, std::atoi(argv[i])));
  // Asked first: says in one line what is wrong with the device, if anything is.
  sysone::Must(sysone::MakeCudaBackend({})).reset();
  printf("{\"copy_bytes_per_s\": %.4g, \"product_flops_per_s\": %.4g}\n", sysone::CopyBandwidth(),
         sysone::ProductRate());
  sysone::Measure(argv[1], argv[2], std::max(1, std::atoi(argv[3])), lengths);
  return 0;
}
