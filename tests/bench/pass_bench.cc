// Whole forward passes against oneDNN's time for the projections alone, and against what the machine can do at best. One
// process, so that each round measures all of them within a moment. scripts/bench/pass runs it and makes tables of its output.
//
//   pass_bench MODEL_FILE DTYPE THREADS ROUNDS FLOORS LENGTH…
//
// FLOORS: dtypes for oneDNN, separated by commas, or "none". Prints JSON lines: one about the model, then one a round.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "model/model_files.h"
#include "tests/bench/machine_peaks.h"
#include "tests/bench/onednn_floor.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

// Threads of the side that was measured before may still spin for a moment.
constexpr auto kPause = std::chrono::milliseconds(8);
// One round more, unmeasured, for passes so short that first touches show in them.
constexpr int32_t kWarmBelow = 512;

struct Options {
  std::string model, dtype;
  int threads = 2, rounds = 5;
  std::vector<std::string> floors;
  std::vector<int32_t> lengths;
};

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fprintf(stderr, "pass_bench: %s\n", result.status().message().c_str());
    exit(1);
  }
  return std::move(result).value();
}

double Milliseconds(const std::function<void()>& work) {
  std::this_thread::sleep_for(kPause);
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// One decision over made-up tokens: everything from tokens to the logits of two labels.
class OurPass {
 public:
  OurPass(Backend& backend, const ModelWeights& weights, int32_t longest)
      : vocab_(weights.config.vocab) {
    DecoderLimits limits;
    limits.max_rows = longest;
    limits.max_reads = 1;
    limits.max_positions = longest;
    decoder_ = Must(Decoder::Load(backend, weights.config, weights.tensors, limits, [](double) {}));
  }

  void Prepare(int32_t length) {
    tokens_.resize(static_cast<size_t>(length));
    for (size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<TokenId>((i * 7919 + 31) % static_cast<size_t>(vocab_));
    first_.clear();
  }

  void Run() {
    const JobTokens job{{}, {{tokens_, labels_}}, false};
    pass_.Build(std::vector<PassItem>{{&job, 0, 1}});
    std::vector<float> logits(labels_.size());
    decoder_->Forward(pass_, logits, {});
    for (const float logit : logits) SYSONE_CHECK(std::isfinite(logit), "a logit is no number");
    if (first_.empty()) first_ = logits;
    SYSONE_CHECK(logits == first_, "equal passes gave different logits");
  }

 private:
  const int32_t vocab_;
  std::unique_ptr<Decoder> decoder_;
  const std::vector<TokenId> labels_{32, 33};
  std::vector<TokenId> tokens_;
  std::vector<float> first_;
  Pass pass_;
};

struct NamedFloor {
  std::string dtype;
  std::unique_ptr<OnednnFloor> floor;
};

// Every side once, in an order that turns from round to round.
void Round(int round, int32_t length, int threads, OurPass& ours, std::vector<NamedFloor>& floors,
           double work) {
  const MachinePeak integers = IntegerPeak(threads), floats = FloatPeak(threads);
  double ours_ms = 0;
  std::vector<double> floor_ms(floors.size());
  const size_t sides = floors.size() + 1;
  for (size_t i = 0; i < sides; ++i) {
    const size_t side = (i + static_cast<size_t>(round + 1)) % sides;
    if (side == floors.size())
      ours_ms = Milliseconds([&] { ours.Run(); });
    else
      floor_ms[side] = Milliseconds([&] { floors[side].floor->Run(); });
  }
  if (round < 0) return;
  printf(
      "{\"length\": %d, \"projection_gop\": %.3f, \"ours_ms\": %.3f, \"integer_gops\": %.2f, "
      "\"float_gops\": %.2f, \"onednn_ms\": {",
      length, work * length / 1e9, ours_ms, integers.operations_per_ns, floats.operations_per_ns);
  for (size_t f = 0; f < floors.size(); ++f)
    printf("%s\"%s\": %.3f", f == 0 ? "" : ", ", floors[f].dtype.c_str(), floor_ms[f]);
  printf("}}\n");
  fflush(stdout);
}

void Run(const Options& options) {
  const auto backend =
      Must(MakeBackend({.name = "cpu", .dtype = options.dtype, .threads = options.threads}));
  const ModelWeights weights = Must(OpenModelWeights(options.model));
  OurPass ours(*backend, weights, *std::ranges::max_element(options.lengths));
  std::vector<NamedFloor> floors;
  for (const std::string& dtype : options.floors) {
    auto floor = MakeOnednnFloor(weights.config, dtype, options.threads);
    if (floor) floors.push_back({dtype, std::move(floor)});
  }
  const double work = ProjectionWork(weights.config);
  printf("{\"backend\": \"%s\", \"integer_peak\": \"%s\", \"float_peak\": \"%s\"}\n",
         backend->Describe().c_str(), IntegerPeak(1).instruction.c_str(),
         FloatPeak(1).instruction.c_str());
  for (const int32_t length : options.lengths) {
    ours.Prepare(length);
    for (NamedFloor& floor : floors) floor.floor->Prepare(length);
    for (int round = length < kWarmBelow ? -1 : 0; round < options.rounds; ++round)
      Round(round, length, options.threads, ours, floors, work);
    for (const NamedFloor& floor : floors) {
      SYSONE_CHECK(floor.floor->ProductIsRight(), "oneDNN's %s product is wrong",
                   floor.dtype.c_str());
      fprintf(stderr, "%d tokens: oneDNN %s by %s\n", length, floor.dtype.c_str(),
              floor.floor->implementation().c_str());
    }
  }
}

Options Parse(int argc, char** argv) {
  if (argc < 7) {
    fputs("usage: pass_bench MODEL_FILE DTYPE THREADS ROUNDS FLOORS LENGTH…\n", stderr);
    exit(2);
  }
  Options options{argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]), {}, {}};
  std::string floors = argv[5];
  for (size_t comma; floors != "none" && !floors.empty(); floors.erase(0, comma)) {
    comma = std::min(floors.find(','), floors.size());
    options.floors.push_back(floors.substr(0, comma));
    if (comma < floors.size()) ++comma;
  }
  for (int i = 6; i < argc; ++i) options.lengths.push_back(std::max(1, std::atoi(argv[i])));
  return options;
}

}  // namespace
}  // namespace sysone

int main(int argc, char** argv) {
  sysone::Run(sysone::Parse(argc, argv));
  return 0;
}
