// The promise behind cache and scheduler, with real numbers: a prompt's logits have the same bits
// whether it runs alone, in company, in pieces of any size, behind a prefix that somebody else
// computed, from a stored state, or again after everything was forgotten. Tiny models of every
// family over the fast backends.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <deque>
#include <map>
#include <random>

#include "model/model_files.h"
#include "worker/decoder.h"
#include "worker/pass_runner.h"
#include "worker/scheduler.h"

namespace sysone {
namespace {

constexpr int32_t kLongest = 150;  // tokens of a prompt: more than two key blocks of attention
constexpr int32_t kVocabulary = 96;
constexpr int32_t kMaxRows = 200;
constexpr int32_t kMostBlocks = 400;

struct Setting {
  std::string family, backend, dtype;
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"})
    for (const std::string& backend : BackendNames())
      if (backend != "reference")
        for (const char* dtype : {"float32", "bfloat16", "int8"})
          settings.push_back({family, backend, dtype});
  return settings;
}

std::string SettingName(const ::testing::TestParamInfo<Setting>& info) {
  std::string name = info.param.family + "_" + info.param.backend + "_" + info.param.dtype;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

using Prompt = std::vector<TokenId>;
using Bits = std::vector<uint32_t>;

Bits BitsOf(std::span<const float> values) {
  Bits bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size_bytes());
  return bits;
}

class ReuseIdentity : public ::testing::TestWithParam<Setting> {
 protected:
  struct Job {
    Prompt prefix;
    std::vector<Prompt> branches;
    JobTokens tokens;
  };

  void SetUp() override {
    BackendOptions options;
    options.name = GetParam().backend;
    options.dtype = GetParam().dtype;
    // The models are in float32; some are served as if they were in 4 bits, so that both kinds of int8 are seen.
    if (GetParam().family.starts_with("llama")) options.weight_grain = WeightGrain::kCoarse;
    auto backend = MakeBackend(options);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    backend_ = std::move(backend).value();
    auto weights =
        OpenModelWeights(std::string(SYSONE_SOURCE_DIR) + "/tests/golden/" + GetParam().family);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    auto decoder =
        Decoder::Load(*backend_, weights->config, weights->tensors,
                      {kMaxRows, 16, kLongest, kMostBlocks * KvCache::kBlockRows}, [](double) {});
    ASSERT_TRUE(decoder.ok()) << decoder.status().message();
    decoder_ = std::move(decoder).value();
  }

  Prompt Tokens(size_t count) {
    Prompt tokens;
    while (tokens.size() < count) tokens.push_back(static_cast<TokenId>(random_() % kVocabulary));
    return tokens;
  }

  // Prompts that begin like others more often than not, cut into prefix and branches anywhere.
  void MakeJobs(size_t count) {
    const Prompt state = Tokens(kLongest - 30);
    for (size_t i = 0; i < count; ++i) {
      Job& job = jobs_.emplace_back();
      if (i % 7 == 6) {  // word for word
        job.prefix = jobs_[i / 2].prefix;
        job.branches = jobs_[i / 2].branches;
      } else {
        job.prefix.assign(state.begin(),
                          state.begin() + static_cast<ptrdiff_t>(random_() % state.size()));
        if (random_() % 4 == 0) job.prefix = Tokens(random_() % 20);
        job.branches.resize(1 + random_() % 4);
        for (Prompt& branch : job.branches) {
          branch = Tokens(1 + random_() % 25);
          if (random_() % 3 == 0) {  // goes on like the state does
            branch.assign(state.begin() +
                              static_cast<ptrdiff_t>(std::min(job.prefix.size(), state.size() - 1)),
                          state.end());
            branch.resize(1 + random_() % branch.size());
          }
        }
      }
      job.tokens.prefix = job.prefix;
      for (const Prompt& branch : job.branches) job.tokens.branches.push_back({branch, labels_});
    }
  }

  // The branch by itself in an empty cache.
  const Bits& Alone(const Job& job, size_t branch) {
    Prompt prompt = job.prefix;
    prompt.insert(prompt.end(), job.branches[branch].begin(), job.branches[branch].end());
    auto [at, is_new] = alone_.try_emplace(prompt);
    if (is_new) {
      const JobTokens whole{{}, {{at->first, labels_}}, false};
      Pass pass;
      pass.Build(std::vector<PassItem>{{&whole, 0, 1}});
      std::vector<float> logits(labels_.size());
      decoder_->Forward(pass, logits, {});
      at->second = BitsOf(logits);
    }
    return at->second;
  }

  void ExpectSameBits(const SchedulerLimits& limits, int32_t blocks, bool keep) {
    KvCache cache(blocks, keep);
    Scheduler scheduler(limits, cache);
    PassRunner runner(*decoder_, cache);
    Pass pass;
    ScheduledPass scheduled;
    size_t next = 0, reads = 0, wanted = 0;
    while (next < jobs_.size() || !scheduler.empty()) {
      for (size_t some = random_() % 6; some > 0 && next < jobs_.size(); --some, ++next) {
        ASSERT_TRUE(scheduler.Fits(jobs_[next].tokens));
        wanted += jobs_[next].branches.size();
        scheduler.Add({next, &jobs_[next].tokens, random_() % 5 == 0 ? 1u : 0u, 0,
                       static_cast<int64_t>(next), INT64_MAX});
      }
      scheduler.Next(0, pass, scheduled);
      if (scheduled.reads.empty() && pass.rows() == 0) continue;
      runner.Run(pass, scheduled);
      for (size_t i = 0; i < scheduled.reads.size(); ++i, ++reads) {
        const ScheduledRead& read = scheduled.reads[i];
        ASSERT_EQ(BitsOf(runner.logits().subspan(i * labels_.size(), labels_.size())),
                  Alone(jobs_[read.id], static_cast<size_t>(read.branch)))
            << "job " << read.id << ", branch " << read.branch << ", " << read.cached_tokens
            << " tokens cached, " << pass.rows() << " rows";
        cached_tokens_ += read.cached_tokens;
        stored_reads_ += pass.read_states()[i] >= std::ssize(pass.read_rows());
      }
      scheduler.PassDone();
    }
    EXPECT_EQ(reads, wanted);
    evictions_ += cache.evictions();
  }

  std::mt19937 random_{5};
  const Prompt labels_{1, 7, 20, 33, 64, 95};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Decoder> decoder_;
  std::deque<Job> jobs_;
  std::map<Prompt, Bits> alone_;
  int64_t cached_tokens_ = 0;
  int64_t stored_reads_ = 0;
  uint64_t evictions_ = 0;
};

TEST_P(ReuseIdentity, ALogitHasTheSameBitsHoweverItsPromptWasComputed) {
  MakeJobs(40);
  constexpr int32_t kLeastBlocks = kLongest / KvCache::kBlockRows + 2;
  std::vector<SchedulerLimits> all_limits{
      {kMaxRows, kMaxRows, 16}, {64, 64, 16}, {17, 9, 3}, {kMaxRows, 33, 16}};
  std::vector<bool> keeps{true, false};
  if (backend_->Queue() != nullptr) {  // of a device: an emulated one takes too long for all
    all_limits = {{64, 64, 16}};
    keeps = {true};
  }
  for (const SchedulerLimits& limits : all_limits) {
    for (const int32_t blocks : {kMostBlocks, kLeastBlocks}) {
      for (const bool keep : keeps) {
        SCOPED_TRACE(::testing::Message() << limits.max_rows << ", " << limits.shared_rows
                                          << " rows a pass, " << blocks << " blocks, " << keep);
        ExpectSameBits(limits, blocks, keep);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(cached_tokens_, 1000) << "nothing was ever found: this was no test of reuse";
  EXPECT_GT(stored_reads_, 5 * std::ssize(all_limits));
  EXPECT_GT(evictions_, 100u);
}

INSTANTIATE_TEST_SUITE_P(Models, ReuseIdentity, ::testing::ValuesIn(Settings()), SettingName);

}  // namespace
}  // namespace sysone
