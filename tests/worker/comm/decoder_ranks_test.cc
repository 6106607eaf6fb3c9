// The tiny models on 2 and 4 ranks against one rank: families whose heads divide by both, by neither, and whose key-value heads
// are fewer than the ranks (llama 9 of 3, llama3 4 of 1, qwen2 7 of 1, qwen3 4 of 2 and 6 of 3), in every type.
//
// Bounds. Ranks only change the order of sums and, in int8 and bfloat16, what the inputs of o and down are rounded to, so the
// bounds are those that decoder_golden_test.cc derives for these models:
//   float32    an honest re-ordering of the same sums moves a logit by up to 1e-4
//   int8       activations are rounded in codes of 7 bits and a sign, and a sum in another order puts some on the other side of a
//              code's edge; peaks are told by a rank's columns instead of all. Either side is off by up to 0.34 for it, together
//              0.7, which is also what two roundings of the weights differ by, where a rank's heads do not begin at a multiple of
//              32 columns (llama, llama3 and qwen2 have heads of 16).
//   bfloat16   other roundings of activations on the way: up to 0.5
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

#include "base/log.h"
#include "tests/worker/comm/mpirun.h"
#include "tests/worker/comm/tiny_qwen3.h"

namespace sysone {
namespace {

constexpr size_t kVocabulary = 768;  // of all these models
constexpr size_t kValues = kVocabulary + 2;

using Values = std::map<std::string, std::vector<double>>;  // by "family dtype"

std::string RunRanks(int ranks, const std::string& over = "shared") {
  std::string folders;
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"})
    folders += std::string(SYSONE_SOURCE_DIR "/tests/golden/") + family + ",";
  // Six heads of three key-value heads: four ranks have two, two, one and one head.
  const std::string made = ::testing::TempDir() + Format("ranks.%d", getpid());
  const std::string uneven = made + "/qwen3_6_heads";
  WriteTinyQwen3(uneven, 6, 3);
  for (const char* file : {"/tokenizer.json", "/tokenizer_config.json"})
    std::filesystem::copy_file(std::string(SYSONE_SOURCE_DIR "/tests/golden/qwen3") + file,
                               uneven + file, std::filesystem::copy_options::overwrite_existing);
  const RanksRun run = Mpirun(Format("-np %d " SYSONE_DECODER_RANKS " %s %s float32 int8 bfloat16",
                                     ranks, over.c_str(), (folders + uneven).c_str()));
  std::filesystem::remove_all(made);
  EXPECT_EQ(run.exit_status, 0) << run.output;
  return run.output;
}

Values Parse(const std::string& output) {
  Values values;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string family, dtype;
    words >> family >> dtype;
    for (std::string word; words >> word;)
      values[family + " " + dtype].push_back(std::strtod(word.c_str(), nullptr));
  }
  return values;
}

double BoundOf(const std::string& name) {
  if (name.ends_with("float32")) return 1e-4;
  if (name.ends_with("bfloat16")) return 0.5;
  return 0.7;
}

TEST(DecoderOnRanks, GivesTheAnswersOfOneRankAndTheSameBitsInEveryRun) {
  const Values alone = Parse(RunRanks(1));
  ASSERT_EQ(alone.size(), 15u);
  for (const int ranks : {2, 4}) {
    const std::string output = RunRanks(ranks);
    EXPECT_EQ(output, RunRanks(ranks)) << "another run, other bits";
    EXPECT_EQ(output, RunRanks(ranks, "mpi")) << "another way to sum, other bits";
    const Values together = Parse(output);
    ASSERT_EQ(together.size(), alone.size());
    bool any_differs = false;
    for (const auto& [name, expected] : alone) {
      const std::vector<double>& got = together.at(name);
      ASSERT_EQ(expected.size(), 4 * kValues) << name;
      ASSERT_EQ(got.size(), expected.size()) << name;
      double largest = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        if (i % kValues == kValues - 1) continue;  // the argmax
        const double difference = std::abs(got[i] - expected[i]);
        ASSERT_TRUE(std::isfinite(difference)) << name << " value " << i;
        largest = std::max(largest, difference);
      }
      EXPECT_LE(largest, BoundOf(name)) << name << " on " << ranks << " ranks";
      printf("%s on %d ranks: up to %.2g\n", name.c_str(), ranks, largest);
      any_differs |= largest > 0;
      // The token that the summary names is one whose logit is the largest.
      for (size_t prompt = 0; prompt < 4; ++prompt) {
        const auto logits = got.begin() + static_cast<ptrdiff_t>(prompt * kValues);
        const auto argmax = static_cast<size_t>(got[prompt * kValues + kVocabulary + 1]);
        ASSERT_LT(argmax, kVocabulary);
        EXPECT_EQ(static_cast<size_t>(std::max_element(logits, logits + kVocabulary) - logits),
                  argmax)
            << name;
      }
    }
    EXPECT_TRUE(any_differs) << "not one sum in another order: were there several ranks at all?";
  }
}

}  // namespace
}  // namespace sysone
