// Recorded passes by themselves: what is kept, what is forgotten.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/recorded_passes.h"

#include <gtest/gtest.h>

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
  CudaRecordedPasses passes_{stream_, 2};
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

}  // namespace
}  // namespace sysone
