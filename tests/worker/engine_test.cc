// The worker's loop over an arena in plain memory, with a forward pass of which every number says where it came from.
// SPDX-License-Identifier: Apache-2.0
#include "worker/engine.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "shm_arena/group_bell.h"
#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

constexpr int32_t kVocabulary = 1000;
constexpr float kUnwritten = -12345.0F;

struct Branch {
  std::vector<TokenId> suffix;
  std::vector<TokenId> labels;
};

// What the stub below answers for a label at a branch's last token.
float LogitOf(TokenId last_token, TokenId label) {
  return static_cast<float>(last_token) * 1000.0F + static_cast<float>(label);
}

class FakeListener : public DoorbellListener {
 public:
  void Notice(SlotHandle slot) { pending_.push_back(slot); }
  void Wait(int64_t, size_t limit, std::vector<SlotHandle>& out) override {
    const auto end = pending_.begin() + static_cast<ptrdiff_t>(std::min(limit, pending_.size()));
    out.assign(pending_.begin(), end);
    pending_.erase(pending_.begin(), end);
  }

 private:
  std::vector<SlotHandle> pending_;
};

// A state is the prompt's last token and how many tokens there are.
class StubModel : public PassModel {
 public:
  int32_t hidden() const override { return 2; }
  void Run(const Pass& pass, std::span<float> states, std::span<float> logits,
           std::span<HeadSummary> summaries) override {
    if (pass.rows() > 0) Compute(pass, states);
    ReadOut(pass, states, logits, summaries);
  }

  std::vector<int32_t> pass_rows;  // one a pass
  std::function<void()> during_pass;

 private:
  void Compute(const Pass& pass, std::span<float> states) {
    for (size_t i = 0; i < pass.read_rows().size(); ++i) {
      const auto row = static_cast<size_t>(pass.read_rows()[i]);
      states[2 * i] = static_cast<float>(pass.tokens()[row]);
      states[2 * i + 1] = static_cast<float>(pass.plan().positions[row] + 1);
    }
    pass_rows.push_back(pass.rows());
    if (during_pass) during_pass();
  }
  void ReadOut(const Pass& pass, std::span<const float> states, std::span<float> logits,
               std::span<HeadSummary> summaries) {
    const auto last_token = [&](int32_t state) {
      return static_cast<TokenId>(states[2 * static_cast<size_t>(state)]);
    };
    for (size_t i = 0; i < logits.size(); ++i)
      logits[i] = LogitOf(last_token(pass.label_states()[i]), pass.label_ids()[i]);
    for (size_t i = 0; pass.summarize_head() && i < summaries.size(); ++i) {
      summaries[i].log_sum_exp = static_cast<float>(last_token(static_cast<int32_t>(i))) + 0.5F;
      summaries[i].argmax = last_token(static_cast<int32_t>(i)) + 1;
    }
  }
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() : arena_(Arena::InMemory(SmallConfig(6, 2))) {
    EXPECT_TRUE(arena_.Register(ProcessRole::kApiServer, 0).ok());
    arena_.board().StartGroup(kGroup0);
    arena_.board().GroupReady(kGroup0, arena_.self(), kVocabulary);
  }
  // Whatever a test did with its jobs, no slot is left when their owner is through.
  void TearDown() override {
    for (const SlotHandle slot : jobs_) arena_.slots().Release(slot);
    EXPECT_EQ(arena_.slots().InUse(), 0u);
  }

  Engine MakeEngine(DoorbellListener& bell, const SchedulerLimits& limits = {256, 256, 64},
                    int32_t kv_blocks = 100, bool prefix_caching = true) {
    EngineOptions options;
    options.group = kGroup0;
    options.vocabulary = kVocabulary;
    options.limits = limits;
    options.kv_blocks = kv_blocks;
    options.prefix_caching = prefix_caching;
    return Engine(arena_, bell, model_, options);
  }

  SlotHandle PutJob(const std::vector<TokenId>& prefix, const std::vector<Branch>& branches,
                    int64_t deadline_us = 0, uint32_t flags = 0, uint64_t salt = 0) {
    JobShape shape{static_cast<int32_t>(prefix.size()), 0, static_cast<int32_t>(branches.size()),
                   0};
    for (const Branch& branch : branches) {
      shape.suffix_tokens += static_cast<int32_t>(branch.suffix.size());
      shape.label_count += static_cast<int32_t>(branch.labels.size());
    }
    const SlotHandle slot = *arena_.slots().Claim(arena_.self(), JobBytes(shape));
    JobWriter writer = *JobWriter::Begin(arena_.slots().payload(slot), shape, flags, salt);
    writer.SetPrefix(prefix);
    for (const Branch& branch : branches) writer.AddSequence(branch.suffix, branch.labels);
    const auto used_bytes = static_cast<uint32_t>(writer.Finish());
    const JobView view = Open(slot);
    for (int32_t s = 0; s < view.sequence_count(); ++s)
      std::ranges::fill(view.label_logits(s), kUnwritten);
    EXPECT_TRUE(arena_.slots().Publish(slot, kGroup0, {MonotonicUs(), deadline_us, 0, used_bytes}));
    jobs_.push_back(slot);
    return slot;
  }
  SlotHandle PutSmallJob(TokenId token, int64_t deadline_us = 0) {
    return PutJob({}, {{{token}, {1, 2}}}, deadline_us);
  }

  JobView Open(SlotHandle slot) {
    return *JobView::Open(arena_.slots().payload(slot), kVocabulary);
  }
  SlotState State(SlotHandle slot) { return arena_.slots().word(slot.index).state; }
  Code FailureOf(SlotHandle slot) {
    const SlotOutcome wait = arena_.slots().Look(slot);
    return wait.state == SlotState::kFailed ? wait.code : Code::kOk;
  }
  void ExpectAnswered(SlotHandle slot) {
    ASSERT_EQ(State(slot), SlotState::kDone);
    const JobView view = Open(slot);
    for (int32_t s = 0; s < view.sequence_count(); ++s)
      for (size_t i = 0; i < view.labels(s).size(); ++i)
        EXPECT_EQ(view.label_logits(s)[i], LogitOf(view.suffix(s).back(), view.labels(s)[i]))
            << "sequence " << s << ", label " << i;
  }

  Arena arena_;
  FakeListener bell_;
  std::vector<SlotHandle> jobs_;
  StubModel model_;
};

TEST_F(EngineTest, AJobIsAnsweredOnceHoweverOftenItIsNoticed) {
  Engine engine = MakeEngine(bell_);
  const SlotHandle slot = PutJob({5, 6}, {{{7}, {1, 2, 3}}, {{8, 9}, {4}}});
  bell_.Notice({slot.index, slot.generation + 1});
  bell_.Notice({999'999, 0});
  for (int i = 0; i < 3; ++i) bell_.Notice(slot);
  engine.Step(0);
  ExpectAnswered(slot);
  bell_.Notice(slot);
  engine.Step(0);
  EXPECT_EQ(model_.pass_rows, (std::vector<int32_t>{5}));
  EXPECT_TRUE(engine.idle());

  // Nor does the notice of a finished job start the next job of the slot before it is published.
  arena_.slots().Release(slot);
  bell_.Notice(slot);
  engine.Step(0);
  EXPECT_EQ(model_.pass_rows.size(), 1u);
  EXPECT_EQ(State(slot), SlotState::kFree);
}

TEST_F(EngineTest, AJobWhoseNoticeIsLostIsFoundByTheSweep) {
  Engine engine = MakeEngine(bell_);
  engine.Step(0);  // the first step sweeps; from here on a job must wait for the next sweep
  const SlotHandle slot = PutSmallJob(7);
  for (const int64_t deadline_us = Soon();
       State(slot) != SlotState::kDone && MonotonicUs() < deadline_us;)
    engine.Step(0);
  ExpectAnswered(slot);
}

TEST_F(EngineTest, AJobThatItsOwnerGaveUpIsNotRun) {
  Engine engine = MakeEngine(bell_, {4, 4, 64});
  const SlotHandle first = PutJob({}, {{{1, 2, 3, 4}, {1}}});
  const SlotHandle waiting = PutJob({}, {{{5, 6, 7, 8}, {1}}});
  const SlotHandle unseen = PutJob({}, {{{9}, {1}}});
  arena_.slots().Release(unseen);
  for (const SlotHandle slot : {first, waiting, unseen}) bell_.Notice(slot);
  engine.Step(0);
  ExpectAnswered(first);
  ASSERT_EQ(State(waiting), SlotState::kRunning) << "taken, and waiting for its pass";
  arena_.slots().Release(waiting);
  EXPECT_EQ(State(waiting), SlotState::kAbandoned);
  engine.Step(0);
  EXPECT_EQ(State(waiting), SlotState::kFree);
  EXPECT_EQ(model_.pass_rows.size(), 1u);
  EXPECT_TRUE(engine.idle());
}

TEST_F(EngineTest, AJobWhoseDeadlinePassedFailsBeforeAPassIsSpentOnIt) {
  Engine engine = MakeEngine(bell_, {4, 4, 64});
  const SlotHandle late = PutSmallJob(7, 1);
  bell_.Notice(late);
  engine.Step(0);
  EXPECT_EQ(FailureOf(late), Code::kDeadlineExceeded);
  EXPECT_TRUE(model_.pass_rows.empty());

  // The same while it waits behind another job's pass.
  const int64_t deadline_us = MonotonicUs() + 200'000;
  model_.during_pass = [&] {
    while (MonotonicUs() <= deadline_us) std::this_thread::yield();
  };
  const SlotHandle first = PutJob({}, {{{1, 2, 3, 4}, {1}}});
  const SlotHandle second = PutJob({}, {{{1, 2, 3, 4}, {1}}}, deadline_us);
  bell_.Notice(first);
  bell_.Notice(second);
  engine.Step(0);
  ExpectAnswered(first);
  engine.Step(0);
  EXPECT_EQ(FailureOf(second), Code::kDeadlineExceeded);
  EXPECT_EQ(model_.pass_rows.size(), 1u);
  EXPECT_TRUE(engine.idle());
}

TEST_F(EngineTest, AnInvalidPayloadFailsItselfAlone) {
  Engine engine = MakeEngine(bell_);
  const SlotHandle good = PutSmallJob(7);
  const SlotHandle no_job = PutSmallJob(8);
  reinterpret_cast<JobHeader*>(arena_.slots().payload(no_job).data())->magic = 0;
  const SlotHandle foreign_token = PutSmallJob(kVocabulary - 1);
  const SlotHandle outside = PutSmallJob(9);
  reinterpret_cast<JobHeader*>(arena_.slots().payload(outside).data())->tokens_offset = 1u << 30;
  const SlotHandle nothing_to_read = PutJob({5}, {{{}, {1}}});
  auto* header = reinterpret_cast<JobHeader*>(arena_.slots().payload(foreign_token).data());
  *reinterpret_cast<int32_t*>(reinterpret_cast<std::byte*>(header) + header->tokens_offset) =
      kVocabulary;
  for (const SlotHandle slot : jobs_) bell_.Notice(slot);
  engine.Step(0);
  ExpectAnswered(good);
  for (const SlotHandle bad : {no_job, foreign_token, outside, nothing_to_read})
    EXPECT_EQ(FailureOf(bad), Code::kInternal) << bad.index;
  EXPECT_EQ(model_.pass_rows, (std::vector<int32_t>{1}));
}

TEST_F(EngineTest, APromptLongerThanTheKeyValueMemoryIsRefusedAndHoldsNobodyUp) {
  Engine engine = MakeEngine(bell_, {4, 4, 64}, 1);
  const SlotHandle long_job = PutJob({}, {{{4}, {1}}, {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1}}});
  const SlotHandle short_job = PutSmallJob(7);
  for (const SlotHandle slot : jobs_) bell_.Notice(slot);
  engine.Step(0);
  EXPECT_EQ(FailureOf(long_job), Code::kTooLarge);
  ExpectAnswered(short_job);
}

TEST_F(EngineTest, AJobThatComesDuringALongPromptIsAnsweredBeforeItsEnd) {
  Engine engine = MakeEngine(bell_, {8, 8, 64});
  std::vector<TokenId> tokens(40);
  for (TokenId t = 0; t < 40; ++t) tokens[static_cast<size_t>(t)] = t;
  const SlotHandle long_job = PutJob({}, {{tokens, {1}}});
  bell_.Notice(long_job);
  SlotHandle short_job;
  model_.during_pass = [&] {
    if (model_.pass_rows.size() != 1) return;
    short_job = PutSmallJob(7);
    bell_.Notice(short_job);
  };
  engine.Step(0);
  EXPECT_EQ(State(short_job), SlotState::kReady);
  engine.Step(0);
  ExpectAnswered(short_job);
  EXPECT_EQ(State(long_job), SlotState::kRunning);
  for (int step = 0; step < 10 && !engine.idle(); ++step) engine.Step(0);
  ExpectAnswered(long_job);
}

TEST_F(EngineTest, ALongPromptThatItsOwnerGaveUpEndsBetweenItsPieces) {
  Engine engine = MakeEngine(bell_, {4, 4, 64});
  const SlotHandle slot = PutJob({}, {{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1}}});
  bell_.Notice(slot);
  engine.Step(0);
  arena_.slots().Release(slot);
  engine.Step(0);
  EXPECT_EQ(State(slot), SlotState::kFree);
  EXPECT_EQ(model_.pass_rows, (std::vector<int32_t>{4}));
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(arena_.board().Read(kGroup0).kv.blocks_in_use, 1u) << "as of the last pass";
}

TEST_F(EngineTest, AnIdenticalJobTakesNoPassAndItsCountersTellSo) {
  for (const bool caching : {true, false}) {
    Engine engine = MakeEngine(bell_, {256, 256, 64}, 100, caching);
    model_.pass_rows.clear();
    const uint64_t hits_before = arena_.metrics().Total(Counter::kPrefixCacheHits);
    const uint64_t batches_before = arena_.board().Read(kGroup0).total_batches;
    const auto put = [&](uint64_t salt) {
      const SlotHandle slot = PutJob({5, 6}, {{{7}, {1, 2}}, {{8, 9}, {4}}}, 0, 0, salt);
      bell_.Notice(slot);
      engine.Step(0);
      ExpectAnswered(slot);
      return Open(slot);
    };
    const JobView first = put(1);
    EXPECT_EQ(first.result(0).cached_tokens, 0);
    EXPECT_EQ(first.result(1).cached_tokens, 2) << "the prefix was computed for branch 0";
    const JobView again = put(1);
    const JobView other_salt = put(2);
    EXPECT_EQ(again.result(0).cached_tokens, caching ? 3 : 0);
    EXPECT_EQ(again.result(1).cached_tokens, caching ? 4 : 2);
    EXPECT_EQ(other_salt.result(0).cached_tokens, 0);
    EXPECT_EQ(model_.pass_rows,
              (caching ? std::vector<int32_t>{5, 5} : std::vector<int32_t>{5, 5, 5}));
    EXPECT_EQ(arena_.metrics().Total(Counter::kPrefixCacheHits) - hits_before, caching ? 11u : 6u);
    const GroupLoad load = arena_.board().Read(kGroup0);
    EXPECT_EQ(load.total_batches - batches_before, model_.pass_rows.size());
    EXPECT_EQ(load.kv.blocks, 100u);
    EXPECT_EQ(load.kv.blocks_in_use, 0u);
    EXPECT_EQ(load.kv.blocks_held > 0, caching);
  }
  EXPECT_EQ(arena_.board().Read(kGroup0).total_jobs, 6u);
  EXPECT_EQ(arena_.metrics().Total(Counter::kPrefixCacheQueries), 6 * 7u);
}

TEST_F(EngineTest, AJobSpreadOverPassesGetsEveryResultInItsPlace) {
  Engine engine = MakeEngine(bell_, {64, 64, 3});
  std::vector<Branch> branches;
  for (TokenId b = 0; b < 10; ++b) {
    Branch branch{{100 + b, 200 + b}, {}};
    for (TokenId label = 0; label <= b % 4; ++label) branch.labels.push_back(10 * b + label);
    branches.push_back(branch);
  }
  const SlotHandle before = PutJob({}, {{{31}, {1, 2}}, {{32}, {3}}}, 0, kJobWantsDiagnostics);
  const SlotHandle spread = PutJob({50, 51, 52}, branches, 0, kJobWantsDiagnostics);
  const SlotHandle after = PutSmallJob(33);
  for (const SlotHandle slot : jobs_) bell_.Notice(slot);
  int steps = 0;
  for (; !engine.idle() || steps == 0; ++steps) {
    ASSERT_LT(steps, 20);
    engine.Step(0);
    EXPECT_TRUE(State(after) != SlotState::kDone || State(spread) == SlotState::kDone);
  }
  for (const SlotHandle slot : jobs_) ExpectAnswered(slot);
  // Reads a pass: 2 + 1, 3, 3, 3, 1 of the job behind it.
  EXPECT_EQ(model_.pass_rows.size(), 5u);
  const JobView view = Open(spread);
  for (int32_t s = 0; s < view.sequence_count(); ++s) {
    EXPECT_EQ(view.result(s).log_sum_exp, static_cast<float>(200 + s) + 0.5F);
    EXPECT_EQ(view.result(s).argmax_token, 201 + s);
  }
  EXPECT_EQ(Open(before).result(1).argmax_token, 33);
  EXPECT_EQ(Open(after).result(0).argmax_token, -1) << "nobody asked for it";
  EXPECT_GE(view.queue_us(), 0);
  EXPECT_GE(view.pass_us(), 0);
  EXPECT_EQ(arena_.board().Read(kGroup0).total_jobs, 3u);
}

TEST_F(EngineTest, StoppingAnswersEverythingThatWasPublished) {
  Engine engine = MakeEngine(bell_, {8, 8, 1});
  std::vector<SlotHandle> waiting;
  for (TokenId token = 1; token <= 4; ++token) waiting.push_back(PutSmallJob(token));
  bell_.Notice(waiting[2]);
  const std::atomic<bool> stop = true;
  engine.Run(stop);
  for (const SlotHandle slot : waiting) ExpectAnswered(slot);
  EXPECT_EQ(arena_.board().State(kGroup0), GroupState::kDraining);
}

TEST_F(EngineTest, JobsOfManyOwnersComeBackThroughTheRealDoorbells) {
  char folder[] = "/tmp/sysone-engine-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  for (const bool sleeps_on_futex : {true, false}) {
    std::unique_ptr<DoorbellListener> socket;
    if (!sleeps_on_futex) socket = *DoorbellListener::Bind(folder, kGroup0);
    const auto listener = MakeGroupListener(arena_, kGroup0, std::move(socket));
    const auto bell = MakeGroupDoorbell(arena_, *Doorbell::Create(folder));
    std::atomic<bool> stop = false;
    Engine engine = MakeEngine(*listener, {16, 16, 4});
    std::thread worker([&] { engine.Run(stop); });
    std::vector<std::thread> owners;
    std::atomic<int> right = 0;
    for (int t = 0; t < 4; ++t) {
      owners.emplace_back([&, t] {
        const ProcessId owner =
            AddProcess(arena_, ProcessRole::kApiServer, static_cast<uint32_t>(t));
        const JobShape shape{0, 1, 1, 1};
        for (int i = 0; i < 50; ++i) {
          const TokenId token = 100 * t + i;
          const SlotHandle slot = *arena_.slots().Claim(owner, JobBytes(shape));
          JobWriter writer = *JobWriter::Begin(arena_.slots().payload(slot), shape, 0, 0);
          writer.SetPrefix({});
          const TokenId label = 3;
          writer.AddSequence({&token, 1}, {&label, 1});
          writer.Finish();
          EXPECT_TRUE(arena_.slots().Publish(slot, kGroup0, {MonotonicUs(), 0, 0, 0}));
          bell->Ring(kGroup0, slot);
          const SlotOutcome end = WaitForEnd(arena_, owner, slot, Soon());
          if (end.state == SlotState::kDone && Open(slot).label_logits(0)[0] == LogitOf(token, 3))
            ++right;
          arena_.slots().Release(slot);
        }
      });
    }
    for (std::thread& owner : owners) owner.join();
    stop = true;
    worker.join();
    EXPECT_EQ(right, 200);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sysone
