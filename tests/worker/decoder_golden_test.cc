// Tiny seeded models of every family against the reference framework's float32 outputs
// (tests/golden/, made by tests/golden/make_goldens.py), over every backend of the host: all logits
// of the last position, and each layer on the way.
//
// Tolerances in float32: the reference's own noise (another attention kernel, float64, token by
// token) moves a logit by up to 9e-6 on these files; an honest re-ordering of the same sums is
// allowed ten times that.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "kernels/backend.h"
#include "model/model_files.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

constexpr double kLogitTolerance = 1e-4;
// Layer outputs are about as large as the logits and see fewer sums.
constexpr double kLayerTolerance = 1e-4;

// bfloat16: weights and products keep 8 bits. The reference in bfloat16 differs from itself in
// float32 by up to 0.16 logit on these files; random nets are fragile, so the bound is three times
// that. Fine errors are the float32 test's to find.
constexpr double kBfloat16LogitTolerance = 0.5;

// int8: the reference with its weights in int8 differs from itself in float32 by up to 0.23 logit on
// these files; again three times that, and what its activations add, below.
constexpr double kInt8LogitTolerance = 0.7;
// The fast backends round activations to steps of a 127th of the largest of 32: half a step at most, in layers whose sums have
// 64 to 160 terms. That moves the logits, whose root mean square is 2, by up to 0.076 in the root mean square; three times that.
constexpr double kInt8ActivationTolerance = 0.23;

struct GoldenCase {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<double> logits;
  std::vector<std::pair<double, std::vector<double>>>
      layers;  // rms at the read row, its first four values
};

Json ReadJson(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto json = Json::Parse(text.str());
  SYSONE_CHECK(json.ok(), "%s: %s", path.c_str(), json.status().message().c_str());
  return std::move(json).value();
}

std::vector<double> Doubles(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list.items()) values.push_back(*item.AsDouble());
  return values;
}

std::vector<GoldenCase> ReadGoldens(const std::string& folder) {
  const Json golden = ReadJson(folder + "/golden.json");
  std::vector<GoldenCase> cases;
  for (const Json& item : golden.Find("cases")->items()) {
    GoldenCase golden_case;
    golden_case.name = item.Find("name")->string();
    for (const Json& id : item.Find("input_ids")->items())
      golden_case.ids.push_back(static_cast<TokenId>(*id.AsInt64()));
    golden_case.logits = Doubles(*item.Find("rows")->items()[0].Find("logits"));
    for (const Json& layer : item.Find("layers")->items())
      golden_case.layers.emplace_back(*layer.Find("rms_at_read")->AsDouble(),
                                      Doubles(*layer.Find("first4_at_read")));
    cases.push_back(std::move(golden_case));
  }
  return cases;
}

// Not "near" unless both are finite: a NaN compares false with everything, so the comparison is
// written to fail on it.
::testing::AssertionResult Near(double got, double expected, double tolerance) {
  if (std::isfinite(got) && std::isfinite(expected) && std::abs(got - expected) <= tolerance)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << got << " differs from " << expected << " by more than " << tolerance;
}

std::vector<TokenId> AllIds(size_t count) {
  std::vector<TokenId> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>(i);
  return ids;
}

struct Setting {
  std::string family, backend, dtype;
};

std::vector<Setting> Settings(const std::vector<std::string>& backends,
                              const std::vector<std::string>& dtypes) {
  std::vector<Setting> settings;
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"})
    for (const std::string& backend : backends)
      for (const std::string& dtype : dtypes) settings.push_back({family, backend, dtype});
  return settings;
}

std::vector<std::string> FastBackends() {
  std::vector<std::string> names = BackendNames();
  std::erase(names, "reference");
  return names;
}

std::string SettingName(const ::testing::TestParamInfo<Setting>& info) {
  std::string name = info.param.family + "_" + info.param.backend + "_" + info.param.dtype;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

class DecoderGolden : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    folder_ = std::string(SYSONE_SOURCE_DIR) + "/tests/golden/" + GetParam().family;
    BackendOptions options;
    options.name = GetParam().backend;
    options.dtype = GetParam().dtype;
    // The models are in float32; some are served as if they were in 4 bits, so that both kinds of int8 are seen.
    if (GetParam().family.starts_with("llama")) options.weight_grain = WeightGrain::kCoarse;
    auto backend = MakeBackend(options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    backend_ = std::move(backend).value();
    auto weights = OpenModelWeights(folder_);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    auto decoder =
        Decoder::Load(*backend_, weights->config, weights->tensors, {512, 8, 512}, [](double) {});
    ASSERT_TRUE(decoder.ok()) << decoder.status().message();
    decoder_ = std::move(decoder).value();
  }

  std::vector<float> Run(std::span<const PassItem> items) {
    pass_.Build(items);
    std::vector<float> logits(pass_.label_ids().size());
    decoder_->Forward(pass_, logits, {});
    return logits;
  }

  std::string folder_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  Pass pass_;
};

// Layers are compared in float32 only.
class DecoderGoldenFloat32 : public DecoderGolden {};

// Costs hundreds of passes, and the promise is the fast backends'.
class DecoderExactness : public DecoderGolden {};

TEST_P(DecoderGolden, AllLogitsOfTheLastPositionAreThoseOfTheReference) {
  const double tolerance = GetParam().dtype == "float32"    ? kLogitTolerance
                           : GetParam().dtype == "bfloat16" ? kBfloat16LogitTolerance
                                                            : kInt8LogitTolerance;
  for (const GoldenCase& golden : ReadGoldens(folder_)) {
    const std::vector<TokenId> labels = AllIds(golden.logits.size());
    const JobTokens job{{}, {{golden.ids, labels}}, false};
    const std::vector<float> logits = Run(std::vector<PassItem>{{&job, 0, 1}});
    ASSERT_EQ(logits.size(), golden.logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      ASSERT_TRUE(Near(logits[i], golden.logits[i], tolerance)) << golden.name << " logit " << i;
  }
}

// What int8 weights cost is above; the rest of the way must be as exact as its activations.
TEST(DecoderInt8, FastBackendsAreNearTheReferenceWithTheSameWeights) {
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"}) {
    const std::string folder = std::string(SYSONE_SOURCE_DIR) + "/tests/golden/" + family;
    const std::vector<GoldenCase> cases = ReadGoldens(folder);
    std::vector<std::vector<float>> first;
    for (const std::string name : {"reference", "cpu"}) {
      auto backend = MakeBackend({.name = name, .dtype = "int8"});
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      auto weights = OpenModelWeights(folder);
      ASSERT_TRUE(weights.ok()) << weights.status().message();
      auto decoder =
          Decoder::Load(**backend, weights->config, weights->tensors, {512, 8, 512}, [](double) {});
      ASSERT_TRUE(decoder.ok()) << decoder.status().message();
      for (size_t c = 0; c < cases.size(); ++c) {
        const std::vector<TokenId> labels = AllIds(cases[c].logits.size());
        const JobTokens job{{}, {{cases[c].ids, labels}}, false};
        Pass pass;
        pass.Build(std::vector<PassItem>{{&job, 0, 1}});
        std::vector<float> logits(labels.size());
        (*decoder)->Forward(pass, logits, {});
        if (name == "reference") {
          first.push_back(logits);
          continue;
        }
        double squares = 0;
        for (size_t i = 0; i < logits.size(); ++i)
          squares += std::pow(static_cast<double>(logits[i]) - first[c][i], 2);
        EXPECT_LE(std::sqrt(squares / static_cast<double>(logits.size())), kInt8ActivationTolerance)
            << family << " " << cases[c].name;
      }
    }
  }
}

TEST_P(DecoderGoldenFloat32, EveryLayerIsThatOfTheReference) {
  for (const GoldenCase& golden : ReadGoldens(folder_)) {
    size_t observed = 0;
    decoder_->ObserveLayers([&](size_t layer, std::span<const float> x) {
      ++observed;
      const size_t hidden = x.size() / golden.ids.size();
      const std::span<const float> last = x.last(hidden);
      double square = 0;
      for (const float value : last) square += static_cast<double>(value) * value;
      const auto& [rms, first] = golden.layers[layer];
      EXPECT_TRUE(Near(std::sqrt(square / static_cast<double>(hidden)), rms, kLayerTolerance))
          << golden.name << layer;
      for (size_t i = 0; i < first.size(); ++i)
        EXPECT_TRUE(Near(last[i], first[i], kLayerTolerance))
            << golden.name << " layer " << layer << " value " << i;
    });
    const std::vector<TokenId> labels{0};
    const JobTokens job{{}, {{golden.ids, labels}}, false};
    Run(std::vector<PassItem>{{&job, 0, 1}});
    EXPECT_EQ(observed, golden.layers.size());
  }
}

// The promise behind batching: however a prompt is cut into prefix and branch, and whoever is in
// the pass, the same bits.
TEST_P(DecoderExactness, ALogitDoesNotDependOnTheSplitOrOnTheCompany) {
  const std::vector<GoldenCase> cases = ReadGoldens(folder_);
  const std::vector<TokenId>& ids = cases[1].ids;
  const std::vector<TokenId> labels = AllIds(64);
  const JobTokens alone{{}, {{ids, labels}}, false};
  const std::vector<float> expected = Run(std::vector<PassItem>{{&alone, 0, 1}});
  const JobTokens company{{}, {{cases[2].ids, labels}}, false};
  // A device has a queue; an emulated one takes too long for all of them.
  const size_t step = backend_->Queue() == nullptr ? 1 : 19;
  for (size_t split = 0; split < ids.size(); split += step) {
    const std::span<const TokenId> prefix(ids.data(), split);
    const std::span<const TokenId> branch(ids.data() + split, ids.size() - split);
    const JobTokens job{
        prefix, {{branch.first(1), labels}, {branch, labels}, {branch.last(1), labels}}, false};
    const std::vector<float> logits = Run(std::vector<PassItem>{{&company, 0, 1}, {&job, 0, 3}});
    const std::vector<float> same(logits.begin() + 128, logits.begin() + 192);
    ASSERT_EQ(same, expected) << "prefix of " << split << " tokens";
  }
}

// Observing makes the last layer compute all rows instead of the read ones alone.
TEST_P(DecoderGolden, RowsThatNobodyReadsChangeNothingInTheLastLayer) {
  const std::vector<GoldenCase> cases = ReadGoldens(folder_);
  const std::vector<TokenId> labels = AllIds(64);
  const std::span<const TokenId> ids(cases[1].ids);
  const size_t half = ids.size() / 2;
  const JobTokens job{
      ids.first(half),
      {{ids.subspan(half), labels}, {ids.subspan(half, 1), labels}, {ids.last(1), labels}},
      false};
  const JobTokens other{{}, {{cases[2].ids, labels}}, false};
  const std::vector<PassItem> items{{&job, 0, 3}, {&other, 0, 1}};
  const std::vector<float> read_rows_only = Run(items);
  size_t observed_rows = 0;
  decoder_->ObserveLayers([&](size_t, std::span<const float> x) { observed_rows = x.size(); });
  EXPECT_EQ(Run(items), read_rows_only);
  EXPECT_GT(observed_rows, 0u);
  for (const float logit : read_rows_only) ASSERT_TRUE(std::isfinite(logit));
}

TEST_P(DecoderGolden, SummariesAreOverTheWholeVocabulary) {
  const GoldenCase golden = ReadGoldens(folder_)[1];
  const std::vector<TokenId> labels = AllIds(golden.logits.size());
  const JobTokens job{{}, {{golden.ids, labels}}, true};
  pass_.Build(std::vector<PassItem>{{&job, 0, 1}});
  std::vector<float> logits(labels.size());
  std::vector<HeadSummary> summaries(1);
  decoder_->Forward(pass_, logits, summaries);
  double sum = 0;
  TokenId argmax = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    sum += std::exp(static_cast<double>(logits[i]));
    if (logits[i] > logits[static_cast<size_t>(argmax)]) argmax = static_cast<TokenId>(i);
  }
  EXPECT_EQ(summaries[0].argmax, argmax);
  // 768 terms of relative error 2^-24 each, and the rounding of a value near 10 to float32.
  EXPECT_TRUE(Near(summaries[0].log_sum_exp, std::log(sum), 768 * 0x1p-24 + 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderGolden,
                         ::testing::ValuesIn(Settings(BackendNames(),
                                                      {"float32", "bfloat16", "int8"})),
                         SettingName);
INSTANTIATE_TEST_SUITE_P(Models, DecoderGoldenFloat32,
                         ::testing::ValuesIn(Settings(BackendNames(), {"float32"})), SettingName);
INSTANTIATE_TEST_SUITE_P(Models, DecoderExactness,
                         ::testing::ValuesIn(Settings(FastBackends(),
                                                      {"float32", "bfloat16", "int8"})),
                         SettingName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DecoderExactness);

}  // namespace
}  // namespace sysone
