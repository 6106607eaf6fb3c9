// Passes of the CUDA backend as a whole, over the emulated device: a layer by hand, run for many inputs, once operation by operation
// and once recorded.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/pass_results.h"
#include "tests/kernels/attention_batch.h"
#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

constexpr int32_t kVocabulary = 50, kHidden = 32, kWide = 48, kStoreRows = 400, kMostRows = 64,
                  kMostReads = 8, kPositions = 128;
constexpr AttentionShape kShape = {.heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25f};

std::unique_ptr<Backend> MakeCuda(const std::string& dtype, bool graphs, bool batch_invariant) {
  auto backend = MakeCudaBackend(
      {.dtype = dtype, .threads = 1, .graphs = graphs, .batch_invariant = batch_invariant});
  SYSONE_CHECK(backend.ok(), "%s", backend.status().message().c_str());
  return std::move(*backend);
}

// Inputs of a pass and what they view.
struct Inputs {
  AttentionBatch batch;
  std::vector<TokenId> tokens;
  std::vector<int32_t> read_rows, read_positions;
  std::vector<AttentionRun> read_runs;
  std::vector<int32_t> label_reads;
  std::vector<TokenId> label_ids;

  PassInputs Views() const {
    return {tokens,      batch.Plan(), read_rows, {read_positions, {}, read_runs, batch.spans},
            label_reads, label_ids};
  }
  // Some labels at every read.
  void AskLabels(int32_t of_each) {
    for (int32_t read = 0; read < std::ssize(read_rows); ++read) {
      for (int32_t label = 0; label < of_each; ++label) {
        label_reads.push_back(read);
        label_ids.push_back((7 * read + 3 * label) % kVocabulary);
      }
    }
  }
  // Rows and reads that nobody needs, as the decoder adds them.
  void Pad(const Backend& backend) {
    const auto rows = static_cast<size_t>(backend.PassRows(batch.rows()));
    tokens.resize(rows, kNoToken);
    batch.positions.resize(rows, 0);
    batch.kv_rows.resize(rows, kNoKvRow);
    const auto reads =
        static_cast<size_t>(backend.PassReads(static_cast<int32_t>(read_rows.size())));
    read_rows.resize(reads, 0);
    read_positions.resize(reads, 0);
    const auto labels = static_cast<size_t>(
        backend.PassLabels(static_cast<int32_t>(label_ids.size()), static_cast<int32_t>(reads)));
    label_reads.resize(labels, 0);
    label_ids.resize(labels, kNoToken);
  }
};

// One request: a prefix and branches, each of which is read at its end.
Inputs Request(Data& data, int32_t prefix, std::initializer_list<int32_t> branches) {
  Inputs inputs;
  std::vector<KvSpan> seen;
  if (prefix > 0) seen = inputs.batch.AddRun({}, prefix);
  for (const int32_t rows : branches) {
    inputs.batch.AddRun(seen, rows);
    const AttentionRun& run = inputs.batch.runs.back();
    inputs.read_rows.push_back(inputs.batch.rows() - 1);
    inputs.read_positions.push_back(inputs.batch.positions.back());
    inputs.read_runs.push_back({static_cast<int32_t>(inputs.read_runs.size()), 1,
                                inputs.read_positions.back(), run.first_span, run.span_count});
  }
  for (int32_t row = 0; row < inputs.batch.rows(); ++row)
    inputs.tokens.push_back(data.Integer(0, kVocabulary - 1));
  return inputs;
}

// A model of one layer, whose last rows alone are computed to the end.
class Model {
 public:
  Model(const std::string& dtype, bool graphs, bool batch_invariant = false)
      : backend_(MakeCuda(dtype, graphs, batch_invariant)) {
    Data data(1);
    const auto weight = [&](int64_t out, int64_t in) {
      return backend_->LoadWeight(
          out, in, ReadFrom(data.Normal(out * in, 1 / std::sqrt(static_cast<float>(in))), in));
    };
    table_ = backend_->LoadTable(kVocabulary, kHidden,
                                 ReadFrom(data.Normal(kVocabulary * kHidden), kHidden));
    norm_ = backend_->LoadVector(data.Normal(kHidden));
    bias_ = backend_->LoadVector(data.Normal(kShape.qkv_cols()));
    head_norm_ = backend_->LoadVector(data.Normal(kShape.head_dim));
    qkv_ = weight(kShape.qkv_cols(), kHidden);
    out_ = weight(kHidden, kShape.q_cols());
    gate_up_ = weight(2 * kWide, kHidden);
    down_ = weight(kHidden, kWide);
    rope_ = backend_->LoadRope(kShape.head_dim, data.Normal(kPositions * kShape.head_dim / 2),
                               data.Normal(kPositions * kShape.head_dim / 2));
    store_ = backend_->NewKvStore(kStoreRows, kShape);
    x_ = backend_->NewTensor(kMostRows, kHidden);
    normed_ = backend_->NewOperand(kMostRows, kHidden);
    qkv_rows_ = backend_->NewTensor(kMostRows, kShape.qkv_cols());
    mixed_ = backend_->NewOperand(kMostRows, kShape.q_cols());
    read_x_ = backend_->NewTensor(kMostReads, kHidden);
    read_qkv_ = backend_->NewTensor(kMostReads, kShape.qkv_cols());
    wide_ = backend_->NewTensor(kMostReads, 2 * kWide);
    gated_ = backend_->NewOperand(kMostReads, kWide);
    read_normed_ = backend_->NewTensor(kMostReads, kHidden);
    recorded_ = backend_->NewRecordedPasses([](bool own) { return own; });
  }

  Backend& backend() { return *backend_; }
  // How often the operations were called so far.
  int calls() const { return calls_; }

  void Run(const PassInputs& inputs) {
    backend_->RunPass(inputs, {}, recorded_.get(), [&] { Operations(inputs); });
  }
  // Logits of all labels, then the states of all reads, read out within the pass.
  std::vector<float> ReadInPass(const PassInputs& inputs) {
    std::vector<float> read(inputs.label_ids.size() + inputs.read_rows.size() * kHidden);
    const std::span<float> all(read);
    const PassResults results{all.first(inputs.label_ids.size()),
                              all.subspan(inputs.label_ids.size())};
    backend_->RunPass(inputs, results, recorded_.get(), [&] {
      Operations(inputs);
      ReadOut(inputs, results);
    });
    return read;
  }
  // The same, by operations after the pass that wait by themselves.
  std::vector<float> ReadBehindPass(const PassInputs& inputs) {
    Run(inputs);
    std::vector<float> read(inputs.label_ids.size() + inputs.read_rows.size() * kHidden);
    const std::span<float> all(read);
    ReadOut(inputs, {all.first(inputs.label_ids.size()), all.subspan(inputs.label_ids.size())});
    return read;
  }
  // Final states of the reads.
  std::vector<float> ReadStates(int64_t reads) { return Read(*backend_, *read_x_, reads, kHidden); }
  std::vector<float> States(Inputs inputs) {
    const auto reads = std::ssize(inputs.read_rows);
    inputs.Pad(*backend_);
    Run(inputs.Views());
    return ReadStates(reads);
  }

 private:
  void ReadOut(const PassInputs& inputs, const PassResults& results) {
    const int32_t reads = inputs.read_plan.rows();
    backend_->FinalNorm(*read_x_, *norm_, 1e-5f, reads, *read_normed_);
    backend_->LabelLogits(*read_normed_, *table_, inputs.label_reads, inputs.label_ids,
                          results.label_logits);
    backend_->Download(*read_x_, reads, results.states);
  }

  void Operations(const PassInputs& inputs) {
    ++calls_;
    Backend& b = *backend_;
    const int32_t rows = inputs.plan.rows(), reads = inputs.read_plan.rows();
    b.Embed(*table_, inputs.tokens, *x_);
    b.RmsNorm(*x_, *norm_, 1e-5f, {0, rows}, *normed_);
    b.MatMul(*normed_, *qkv_, bias_.get(), rows, *qkv_rows_);
    b.NormRopeStoreKv(*qkv_rows_, kShape, *rope_, head_norm_.get(), head_norm_.get(), 1e-5f,
                      inputs.plan, *store_);
    b.Attend(*qkv_rows_, kShape, inputs.plan, *store_, *mixed_);
    b.MatMulAdd(*mixed_, *out_, {0, rows}, *x_);
    b.SelectRows(*x_, inputs.read_rows, *read_x_);
    b.SelectRows(*qkv_rows_, inputs.read_rows, *read_qkv_);
    b.Attend(*read_qkv_, kShape, inputs.read_plan, *store_, *mixed_);
    b.MatMulAdd(*mixed_, *out_, {0, reads}, *read_x_);
    b.RmsNorm(*read_x_, *norm_, 1e-5f, {0, reads}, *normed_);
    b.MatMul(*normed_, *gate_up_, nullptr, reads, *wide_);
    b.GatedSilu(*wide_, reads, *gated_);
    b.MatMulAdd(*gated_, *down_, {0, reads}, *read_x_);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Table> table_;
  std::unique_ptr<Vector> norm_, bias_, head_norm_;
  std::unique_ptr<Weight> qkv_, out_, gate_up_, down_;
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<Tensor> x_, qkv_rows_, read_x_, read_qkv_, read_normed_, wide_;
  std::unique_ptr<Operand> normed_, mixed_, gated_;
  std::unique_ptr<RecordedPasses> recorded_;  // the first to go
  int calls_ = 0;
};

class Passes : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { emulation::SetWorkTime(emulation::WorkTime::kWhenAsked); }
  void TearDown() override {
    emulation::SetWorkTime(emulation::WorkTime::kAtOnce);
    EXPECT_EQ(emulation::TakeFault(), "");
  }
};

TEST_P(Passes, ARecordedPassGivesTheBitsOfItsOperationsForOtherInputsOfItsSize) {
  Model recorded(GetParam(), true), plain(GetParam(), false);
  Data data(2);
  for (int round = 0; round < 4; ++round) {
    for (const Inputs& inputs :
         {Request(data, 20, {3, 4}), Request(data, 17 + round, {1, 6}), Request(data, 0, {25}),
          Request(data, 0, {5 + round, 1, 12 - round}), Request(data, 40, {8})}) {
      const auto want = plain.States(inputs);
      ASSERT_TRUE(SameBits(recorded.States(inputs), want));
      for (const float value : want) ASSERT_TRUE(std::isfinite(value));
    }
  }
  EXPECT_EQ(plain.calls(), 20);
  // Sizes: 24 rows with 2 reads and 4; 32 with 1 and 2; 48 with 1. Each is run and recorded once.
  EXPECT_EQ(recorded.calls(), 2 * 5);
}

TEST_P(Passes, RowsThatNobodyNeedsChangeNoBit) {
  // Another number of rows may mean another algorithm otherwise.
  Model padded(GetParam(), true, true), exact(GetParam(), false, true);
  Data data(3);
  for (const int32_t prefix : {1, 7, 8, 9, 30}) {
    Inputs inputs = Request(data, prefix, {2, 3, 1});
    const auto reads = std::ssize(inputs.read_rows);
    const auto want = exact.States(inputs);
    // As many rows as there are, in a pass of its own size; what lies in the buffers behind them is of another pass.
    padded.States(Request(data, 40, {9, 9}));
    padded.Run(inputs.Views());
    ASSERT_TRUE(SameBits(padded.ReadStates(reads), want)) << prefix;
  }
}

TEST_P(Passes, NeitherMemoryIsMadeNorAnythingWaitedForInAPass) {
  for (const bool graphs : {false, true}) {
    Model model(GetParam(), graphs);
    Data data(4);
    model.States(Request(data, 10, {3}));  // the first pass may
    Inputs inputs = Request(data, 9, {2});
    inputs.Pad(model.backend());
    const std::initializer_list<const char*> forbidden = {
        "cudaMalloc",           "cudaHostAlloc",  "cudaFree",   "cudaStreamSynchronize",
        "cudaEventSynchronize", "cudaEventQuery", "cudaMemcpy", "cudaDeviceSynchronize",
        "cudaStreamQuery"};
    for (const char* call : forbidden) emulation::FailCall(call, cudaErrorUnknown);
    model.Run(inputs.Views());
    // None was used up.
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorUnknown);
    EXPECT_EQ(cudaHostAlloc(&memory, 16, cudaHostAllocDefault), cudaErrorUnknown);
    EXPECT_EQ(cudaFree(nullptr), cudaErrorUnknown);
    EXPECT_EQ(cudaMemcpy(&memory, &memory, 0, cudaMemcpyHostToHost), cudaErrorUnknown);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorUnknown);
    EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorUnknown);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorUnknown);
    cudaEvent_t event;
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorUnknown);
    EXPECT_EQ(cudaEventSynchronize(event), cudaErrorUnknown);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
}

TEST_P(Passes, APassWithManySpansMovesTheInputsAndRecordsAnew) {
  Model recorded(GetParam(), true), plain(GetParam(), false);
  Data data(5);
  const Inputs usual = Request(data, 12, {2, 2});
  const auto want = plain.States(usual);
  ASSERT_TRUE(SameBits(recorded.States(usual), want));
  ASSERT_TRUE(SameBits(recorded.States(usual), want));
  ASSERT_EQ(recorded.calls(), 2);
  // Spans of nothing, 8 bytes each, until the block of 4 MiB is too small.
  Inputs large = Request(data, 12, {2, 2});
  large.batch.spans.resize(1 << 20, {0, 0});
  ASSERT_TRUE(SameBits(recorded.States(large), plain.States(large)));
  ASSERT_EQ(recorded.calls(), 4);
  ASSERT_TRUE(SameBits(recorded.States(usual), want));
  EXPECT_EQ(recorded.calls(), 6) << "a pass was run that reads memory which is gone";
  ASSERT_TRUE(SameBits(recorded.States(usual), want));
  EXPECT_EQ(recorded.calls(), 6);
}

TEST_P(Passes, WhereNothingCanBeRecordedOperationsAreLaunchedOneByOne) {
  for (const char* call :
       {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"}) {
    Model recorded(GetParam(), true), plain(GetParam(), false);
    Data data(6);
    emulation::FailCall(call, cudaErrorMemoryAllocation);
    for (int i = 0; i < 3; ++i) {
      const Inputs inputs = Request(data, 12, {2, 2});
      ASSERT_TRUE(SameBits(recorded.States(inputs), plain.States(inputs))) << call;
    }
    // The first pass may call them twice.
    EXPECT_EQ(recorded.calls(), call == std::string("cudaStreamBeginCapture") ? 3 : 4);
  }
}

TEST_P(Passes, ACallThatFailsWhileAPassIsRecordedCostsNoAnswer) {
  for (const char* call : {"cudaLaunchKernelEx", "cublasLtMatmul"}) {
    // Calls of a pass that is not recorded: the one after them is the recording's first.
    Model plain(GetParam(), false);
    Data data(13);
    const Inputs inputs = Request(data, 12, {2, 2});
    const auto want = plain.States(inputs);
    int kernels = 0, products = 0;
    emulation::ObserveLaunches([&](const emulation::Launched& launched) {
      kernels += launched.kind == emulation::Launched::Kind::kKernel;
      products += launched.kind == emulation::Launched::Kind::kProduct;
    });
    plain.States(inputs);
    emulation::ObserveLaunches({});
    Model recorded(GetParam(), true);
    emulation::FailCall(call, cudaErrorMemoryAllocation,
                        call == std::string("cublasLtMatmul") ? products : kernels);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(SameBits(recorded.States(inputs), want)) << call;
    EXPECT_EQ(recorded.calls(), 4) << call << " did not fail in the recording";
  }
}

TEST_P(Passes, APassMayFollowAnotherWithoutAnybodyReadingItsResult) {
  Model recorded(GetParam(), true), plain(GetParam(), false);
  Data data(7);
  for (int i = 0; i < 4; ++i) {
    Inputs first = Request(data, 12, {2, 2});
    const Inputs second = Request(data, 10, {3, 1});
    const auto want = plain.States(second);
    first.Pad(recorded.backend());
    recorded.Run(first.Views());
    ASSERT_TRUE(SameBits(recorded.States(second), want));
  }
}

TEST_P(Passes, APassThatNobodyReadsIsRecordedToo) {
  Model recorded(GetParam(), true), plain(GetParam(), false);
  Data data(9);
  // What it stores is seen by the next one.
  for (int i = 0; i < 3; ++i) {
    const Inputs unread = Request(data, 20, {});
    EXPECT_TRUE(recorded.States(unread).empty());
    EXPECT_TRUE(plain.States(unread).empty());
    Inputs next = Request(data, 0, {1});
    const KvSpan stored{0, 20};
    next.batch.spans = {stored, {20, 1}};
    next.batch.runs[0] = {0, 1, 20, 0, 2};
    next.batch.positions[0] = next.read_positions[0] = 20;
    next.batch.kv_rows[0] = 20;
    next.read_runs[0] = {0, 1, 20, 0, 2};
    ASSERT_TRUE(SameBits(recorded.States(next), plain.States(next)));
  }
  EXPECT_EQ(recorded.calls(), 2 * 2);
}

TEST_P(Passes, WhatIsReadOutWithinAPassHasTheBitsOfAReadOutBehindIt) {
  Model recorded(GetParam(), true), plain(GetParam(), false), behind(GetParam(), false);
  Data data(10);
  for (int round = 0; round < 3; ++round) {
    for (const int32_t labels : {1, 2, 16, 17, 40}) {
      Inputs inputs = Request(data, 20, {3, 4});
      inputs.AskLabels(labels);
      inputs.Pad(plain.backend());
      const auto want = behind.ReadBehindPass(inputs.Views());
      for (const float value : want) ASSERT_TRUE(std::isfinite(value));
      ASSERT_TRUE(SameBits(plain.ReadInPass(inputs.Views()), want)) << labels;
      ASSERT_TRUE(SameBits(recorded.ReadInPass(inputs.Views()), want)) << labels;
    }
  }
  // Up to 16 labels a read are one size, 17 and 40 another one.
  EXPECT_EQ(recorded.calls(), 2 * 2);
}

TEST(PassResultsTest, MoreThanThereWasRoomForMoveAndAreAnotherMemory) {
  Stream stream;
  DevicePassResults results(stream);
  std::vector<float> few(3), many(5'000'000), states(2);
  for (std::vector<float>* logits : {&few, &many, &few}) {
    results.Put({*logits, states});
    float* const place = results.Find(*logits);
    ASSERT_NE(place, nullptr);
    ASSERT_EQ(results.Find(states), place + logits->size());
    EXPECT_EQ(results.generation(), logits == &few && many[0] == 0 ? 0u : 1u);
    std::fill_n(place, logits->size() + 2, 7.f);
    results.Fetch();
    EXPECT_EQ(logits->back(), 7);
    EXPECT_EQ(states, (std::vector<float>{7, 7}));
  }
  EXPECT_EQ(results.Find(many), nullptr);
}

// From the tokens to the logits: what the host does for a decision. The calls of which there are only so many fail from then on,
// so one more ends the test, and one that is left shows.
TEST_P(Passes, ADecisionIsOneLaunchAndOneWaitAndItsCopiesAreOneEachWay) {
  for (const bool graphs : {true, false}) {
    Model model(GetParam(), graphs);
    Data data(12);
    Inputs inputs = Request(data, 12, {3});
    inputs.AskLabels(3);
    inputs.Pad(model.backend());
    const auto want = model.ReadInPass(inputs.Views());
    emulation::FailCall("cudaGraphLaunch", cudaErrorUnknown, graphs ? 1 : 0);
    emulation::FailCall("cudaMemcpyAsync", cudaErrorUnknown, graphs ? 0 : 2);
    emulation::FailCall("cudaEventRecord", cudaErrorUnknown, 1);  // each wait makes one
    const int calls = model.calls();
    ASSERT_TRUE(SameBits(model.ReadInPass(inputs.Views()), want));
    EXPECT_EQ(model.calls(), calls + (graphs ? 0 : 1));
    // The next one of each fails.
    EXPECT_EQ(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyHostToDevice, nullptr),
              cudaErrorUnknown);
    EXPECT_EQ(cudaGraphLaunch(nullptr, nullptr), cudaErrorUnknown);
    cudaEvent_t event;
    ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorUnknown);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
}

TEST_P(Passes, WhileTuningNothingIsRecorded) {
  Model model(GetParam(), true);
  Data data(8);
  const Inputs inputs = Request(data, 12, {2, 2});
  model.backend().SetTuning(true);
  model.States(inputs);
  model.States(inputs);
  EXPECT_EQ(model.calls(), 2);
  model.backend().SetTuning(false);
  model.States(inputs);
  model.States(inputs);
  EXPECT_EQ(model.calls(), 4);
}

INSTANTIATE_TEST_SUITE_P(Types, Passes, ::testing::Values("float32", "bfloat16", "int8", "fp8"),
                         [](const auto& type) { return type.param; });

}  // namespace
}  // namespace sysone
