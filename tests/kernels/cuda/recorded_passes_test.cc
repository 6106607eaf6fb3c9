// Recorded passes by themselves: what is kept, what is forgotten.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/recorded_passes.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

class RecordedPassesTest : public ::testing::Test {
 protected:
  // Records a pass that writes `value`.
  void Record(const PassSize& size, int value, uint64_t memory = 0) {
    passes_.Record(size, memory,
                   [&] { SYSONE_CUDA(cudaMemsetAsync(byte_.data(), value, 1, stream_.get())); });
  }
  // What the pass of this size writes; -1: there is none.
  int Launched(const PassSize& size, uint64_t memory = 0) {
    if (!passes_.Launch(size, memory)) return -1;
    unsigned char value = 0;
    SYSONE_CUDA(cudaMemcpyAsync(&value, byte_.data(), 1, cudaMemcpyDeviceToHost, stream_.get()));
    stream_.Wait();
    return value;
  }

  Stream stream_;
  DeviceArray<unsigned char> byte_{1};
  std::vector<bool> asked_;
  bool others_ = true;  // have recorded theirs
  CudaRecordedPasses passes_{stream_,
                             [this](bool own) {
                               asked_.push_back(own);
                               return own && others_;
                             },
                             2};
};

constexpr PassSize kA{8, 1, 4, 16}, kB{8, 2, 4, 16}, kC{16, 1, 4, 16};

TEST_F(RecordedPassesTest, EachSizeHasItsOwn) {
  EXPECT_EQ(Launched(kA), -1);
  Record(kA, 7);
  Record(kB, 8);
  EXPECT_EQ(Launched(kA), 7);
  EXPECT_EQ(Launched(kB), 8);
  EXPECT_EQ(Launched({8, 1, 16, 16}), -1);
  EXPECT_EQ(Launched({8, 1, 4, 64}), -1);
}

TEST_F(RecordedPassesTest, NothingIsDoneWhileRecording) {
  Record(kA, 7);
  Record(kB, 8);
  EXPECT_EQ(Launched(kB), 8);
  Record(kC, 9);
  unsigned char value = 0;
  SYSONE_CUDA(cudaMemcpyAsync(&value, byte_.data(), 1, cudaMemcpyDeviceToHost, stream_.get()));
  stream_.Wait();
  EXPECT_EQ(value, 8);
}

TEST_F(RecordedPassesTest, TheOneUnusedForLongestGoes) {
  Record(kA, 7);
  Record(kB, 8);
  EXPECT_EQ(Launched(kA), 7);
  Record(kC, 9);
  EXPECT_EQ(passes_.count(), 2u);
  EXPECT_EQ(Launched(kB), -1);
  EXPECT_EQ(Launched(kA), 7);
  EXPECT_EQ(Launched(kC), 9);
}

TEST_F(RecordedPassesTest, WhenMemoryMovedAllAreForgotten) {
  Record(kA, 7);
  EXPECT_EQ(Launched(kA, 1), -1);
  EXPECT_EQ(passes_.count(), 0u);
  Record(kA, 6, 1);
  EXPECT_EQ(Launched(kA, 1), 6);
}

TEST_F(RecordedPassesTest, AfterARefusalThoseThatAreThereGoOnAndNoneIsAdded) {
  Record(kA, 7);
  emulation::FailCall("cudaGraphInstantiate", cudaErrorMemoryAllocation);
  Record(kB, 8);
  EXPECT_EQ(Launched(kA), 7);
  EXPECT_EQ(Launched(kB), -1);
  Record(kB, 8);
  EXPECT_EQ(Launched(kB), -1);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(RecordedPassesTest, WhatAnotherRankCouldNotRecordIsNotKeptEither) {
  Record(kA, 7);
  others_ = false;
  Record(kB, 8);
  EXPECT_EQ(Launched(kA), 7);
  EXPECT_EQ(Launched(kB), -1);
  others_ = true;
  Record(kB, 8);
  EXPECT_EQ(Launched(kB), -1);
  EXPECT_EQ(asked_, (std::vector<bool>{true, true})) << "the others were not asked any more";
}

// Whatever fails, each rank answers once for a pass, so that no rank waits for another one's answer.
TEST_F(RecordedPassesTest, TheOthersAreToldOfEveryFailure) {
  for (const char* call : {"cudaStreamBeginCapture", "cudaMemsetAsync", "cudaStreamEndCapture",
                           "cudaGraphInstantiate"}) {
    CudaRecordedPasses passes(stream_, [this](bool own) {
      asked_.push_back(own);
      return own;
    });
    asked_.clear();
    emulation::FailCall(call, cudaErrorMemoryAllocation);
    passes.Record(kA, 0, [&] { SYSONE_CUDA(cudaMemsetAsync(byte_.data(), 3, 1, stream_.get())); });
    EXPECT_EQ(asked_, std::vector<bool>{false}) << call;
    EXPECT_FALSE(passes.Launch(kA, 0)) << call;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << call;
  }
  // And the stream is as usable as before.
  Record(kB, 8);
  EXPECT_EQ(Launched(kB), 8);
}

TEST_F(RecordedPassesTest, OutsideOfARecordingAFailingCallEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        emulation::FailCall("cudaMemsetAsync", cudaErrorMemoryAllocation);
        SYSONE_CUDA(cudaMemsetAsync(byte_.data(), 3, 1, stream_.get()));
      },
      "cudaMemsetAsync");
}

}  // namespace
}  // namespace sysone
