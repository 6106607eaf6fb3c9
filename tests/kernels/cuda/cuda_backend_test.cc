// Making the CUDA backend, loading into it, and what it says when it cannot, over emulated devices of several kinds.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include "tests/kernels/backend_variants.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class CudaBackends : public ::testing::Test {
 protected:
  void SetUp() override { emulation::SetDevices(1, 1024 * kMiB, 90); }
  void TearDown() override {
    emulation::SetWorkTime(emulation::WorkTime::kAtOnce);
    emulation::SetDevices(1, size_t{8} << 30, 90);
    EXPECT_EQ(emulation::TakeFault(), "");
  }

  std::unique_ptr<Backend> Make(BackendOptions options = {}) {
    options.threads = 3;
    auto backend = MakeCudaBackend(options);
    SYSONE_CHECK(backend.ok(), "%s", backend.status().message().c_str());
    return std::move(*backend);
  }
  void ExpectRefused(const BackendOptions& options, Code code, const std::string& words) {
    const auto backend = MakeCudaBackend(options);
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.status().code(), code) << backend.status().message();
    EXPECT_NE(backend.status().message().find(words), std::string::npos)
        << backend.status().message();
  }
};

TEST_F(CudaBackends, WhatCannotBeMadeSaysWhy) {
  ExpectRefused({.dtype = "int4"}, Code::kInvalidArgument, "fp8");
  ExpectRefused({.device = 1}, Code::kInvalidArgument, "CUDA_VISIBLE_DEVICES");
  ExpectRefused({.threads = -1}, Code::kInvalidArgument, "threads");
  ExpectRefused({.memory_utilization = 0}, Code::kInvalidArgument, "0 … 1");
  ExpectRefused({.memory_utilization = 1.5}, Code::kInvalidArgument, "0 … 1");
}

TEST_F(CudaBackends, ADeviceThatWillNotDoSaysWhy) {
  emulation::FailCall("cudaSetDevice", cudaErrorDevicesUnavailable);
  ExpectRefused({}, Code::kUnavailable, "CUDA device 0");
  emulation::FailCall("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  ExpectRefused({}, Code::kUnavailable, "no CUDA device");
  emulation::SetDevices(1, 1024 * kMiB, 75);
  ExpectRefused({}, Code::kUnsupported, "7.5");
  emulation::SetDevices(1, 1024 * kMiB, 80);
  ExpectRefused({.dtype = "fp8"}, Code::kUnsupported, "fp8");
  emulation::SetDevices(1, 200 * kMiB, 90);
  ExpectRefused({}, Code::kOutOfMemory, "200 MiB");
}

TEST_F(CudaBackends, TheLineForTheLogNamesDeviceTypeAndLibrary) {
  const std::string line = Make({.dtype = "int8", .batch_invariant = true})->Describe();
  for (const char* words : {"compute capability 9.0", "weights int8", "cuBLASLt", "driver",
                            "passes recorded", "batch-invariant"})
    EXPECT_NE(line.find(words), std::string::npos) << words << " in " << line;
}

TEST_F(CudaBackends, RowsOfManyPiecesArriveWhole) {
  emulation::SetWorkTime(emulation::WorkTime::kWhenAsked);
  const auto backend = Make({.dtype = "float32"});
  // 20 MiB, each value a number of its own.
  constexpr int64_t kRows = 5000, kCols = 1024;
  const auto table = backend->LoadTable(kRows, kCols, [](int64_t first, int64_t count, float* out) {
    for (int64_t i = 0; i < count * kCols; ++i) out[i] = static_cast<float>(first * kCols + i);
  });
  const std::vector<TokenId> ids = {0, 1, 2046, 2047, 2048, 2049, 4095, 4096, 4999};
  const auto out = backend->NewTensor(std::ssize(ids), kCols);
  backend->Embed(*table, ids, *out);
  const auto got = Read(*backend, *out, std::ssize(ids), kCols);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], static_cast<float>(ids[i / kCols] * kCols + static_cast<int>(i % kCols)));
}

TEST_F(CudaBackends, WhatDoesNotFitIsNotReadAndTheErrorHasTheFigures) {
  const auto backend = Make();
  const auto nothing = [](int64_t, int64_t, float*) { FAIL() << "was read"; };
  const auto weight = backend->LoadWeight(20000, 20000, nothing);  // 763 MiB
  EXPECT_FALSE(backend->MemoryStatus().ok());
  // Small, but nothing is taken in any more.
  const auto table = backend->LoadTable(1 << 20, 16, nothing);  // 32 MiB
  const auto norm = backend->LoadVector(std::vector<float>(10));
  const auto operand = backend->NewOperand(10, 10);
  const auto store = backend->NewKvStore(10, {1, 1, 64, 1});
  const Status status = backend->MemoryStatus();
  EXPECT_EQ(status.code(), Code::kOutOfMemory);
  EXPECT_NE(status.message().find("1024 of 1024 MiB"), std::string::npos) << status.message();
}

TEST_F(CudaBackends, KeysAndValuesMayTakeWhatIsLeft) {
  const auto backend = Make();
  const AttentionShape shape{4, 2, 64, 1};
  const int64_t before = backend->KvMemoryLeft(shape);
  const auto some = backend->NewTensor(1 << 20, 32);  // 128 MiB
  const int64_t left = backend->KvMemoryLeft(shape);
  EXPECT_EQ(before - left, int64_t{128} << 20);
  EXPECT_EQ(backend->KvRowBytes(shape), 2 * 2 * 64 * 2);
  const int64_t rows = left / 4 / backend->KvRowBytes(shape);
  std::vector<std::unique_ptr<KvStore>> layers;
  for (int layer = 0; layer < 4; ++layer) layers.push_back(backend->NewKvStore(rows, shape));
  EXPECT_TRUE(backend->MemoryStatus().ok()) << backend->MemoryStatus().message();
  EXPECT_LT(backend->KvMemoryLeft(shape), int64_t{1} << 20);
}

TEST_F(CudaBackends, PassesGrowToSizesThatAreKeptReady) {
  const auto backend = Make();
  for (int32_t count = 0; count <= 600; ++count) {
    const int32_t rows = backend->PassRows(count);
    EXPECT_GE(rows, count);
    EXPECT_EQ(backend->PassRows(rows), rows);
    EXPECT_GE(backend->PassRows(count + 1), rows);
    EXPECT_LE(rows, count + 64);
    EXPECT_LE(rows, std::max(count + 8, count * 3 / 2));
    const int32_t reads = backend->PassReads(count);
    EXPECT_GE(reads, count);
    EXPECT_EQ(backend->PassReads(reads), reads);
    EXPECT_LE(reads, 2 * count);
  }
  EXPECT_EQ(backend->PassRows(0), 0);
  EXPECT_EQ(backend->PassReads(0), 0);
  EXPECT_EQ(backend->PassRows(513), 513);
}

TEST_F(CudaBackends, ChoicesSayWhatTheyAreGoodFor) {
  const auto backend = Make({.dtype = "bfloat16"});
  const ChoiceOrigin origin = backend->OriginOfChoices();
  EXPECT_NE(origin.subject.find("bfloat16"), std::string::npos);
  EXPECT_FALSE(origin.versions.empty());
  EXPECT_NE(origin.subject, Make({.dtype = "int8"})->OriginOfChoices().subject);
  const std::vector<std::byte> choices = backend->ExportChoices();
  EXPECT_TRUE(backend->ImportChoices(choices).ok());
  EXPECT_FALSE(backend->ImportChoices(std::vector<std::byte>(7)).ok());
}

}  // namespace
}  // namespace sysone
