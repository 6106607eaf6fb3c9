// Copies to the emulated device and back, outside of a pass and as the inputs of one. Work is done as late as it may be.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/staging.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/cuda/pass_block.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

std::vector<int32_t> Numbers(int32_t first, size_t count) {
  std::vector<int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

class Copies : public ::testing::Test {
 protected:
  void SetUp() override { emulation::SetWorkTime(emulation::WorkTime::kWhenAsked); }
  void TearDown() override {
    emulation::SetWorkTime(emulation::WorkTime::kAtOnce);
    EXPECT_EQ(emulation::TakeFault(), "");
  }
  std::vector<int32_t> Back(const int32_t* from, size_t count) {
    std::vector<int32_t> numbers(count);
    staging_.Get(from, std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }

  Stream stream_;
  Staging staging_{stream_};
};

TEST_F(Copies, SeveralSpansArriveTogetherAndTheCallersMemoryMayGo) {
  std::vector<int32_t> a = Numbers(1, 3), b = Numbers(100, 5), none;
  const auto [on_a, on_none, on_b] = staging_.Put(
      std::span<const int32_t>(a), std::span<const int32_t>(none), std::span<const int32_t>(b));
  std::fill(a.begin(), a.end(), -1);
  EXPECT_EQ(Back(on_a, 3), Numbers(1, 3));
  EXPECT_EQ(Back(on_b, 5), Numbers(100, 5));
}

TEST_F(Copies, ManyCopiesInARowDoNotOverwriteEachOther) {
  // 8 MiB in all: more than there is at first, so that room is made on the way.
  constexpr size_t kCount = 1000;
  const DeviceArray<int32_t> all(kCount * 2000);
  for (int32_t i = 0; i < 2000; ++i) {
    const auto numbers = Numbers(i * 1000, kCount);
    staging_.Put(std::as_bytes(std::span(numbers)), all.data() + i * static_cast<int32_t>(kCount));
  }
  EXPECT_EQ(Back(all.data(), kCount * 2000), Numbers(0, kCount * 2000));
}

TEST_F(Copies, LargeOnesGoThereAndBackInPieces) {
  const std::vector<int32_t> large = Numbers(5, (size_t{9} << 20) / 4 + 3);
  const DeviceArray<int32_t> on_device(std::ssize(large));
  staging_.Put(std::as_bytes(std::span(large)), on_device.data());
  EXPECT_EQ(Back(on_device.data(), large.size()), large);
  const auto [placed] = staging_.Put(std::span<const int32_t>(large));
  EXPECT_EQ(Back(placed, large.size()), large);
}

TEST_F(Copies, WhatIsInThePassBlockIsFoundOnTheDevice) {
  PassBlock block(stream_, 1024);
  const auto a = Numbers(1, 10), b = Numbers(50, 7), other = Numbers(0, 4);
  block.Begin();
  block.Add(std::span<const int32_t>(a));
  block.Add(std::span<const int32_t>());
  block.Add(std::span<const int32_t>(b));
  block.Send(block.bytes());
  EXPECT_EQ(Back(block.Find(std::span<const int32_t>(a)), 10), a);
  EXPECT_EQ(Back(block.Find(std::span<const int32_t>(b).subspan(2, 3)), 3), Numbers(52, 3));
  EXPECT_EQ(block.Find(std::span<const int32_t>(other)), nullptr);
  EXPECT_EQ(block.Find(std::span<const int32_t>(b).subspan(7)), nullptr);
}

TEST_F(Copies, ABlockIsFilledAnewOnlyAfterItsCopy) {
  PassBlock block(stream_, 1024);
  const auto a = Numbers(1, 10), b = Numbers(50, 10);
  const DeviceArray<int32_t> kept(10);
  for (const auto* values : {&a, &b}) {
    block.Begin();
    block.Add(std::span<const int32_t>(*values));
    block.Send(block.bytes());
    if (values == &a)
      cudaMemcpyAsync(kept.data(), block.Find(std::span<const int32_t>(a)), 40,
                      cudaMemcpyDeviceToDevice, stream_.get());
  }
  EXPECT_EQ(Back(kept.data(), 10), a);
}

TEST_F(Copies, ABlockThatIsTooSmallMovesWithWhatIsInIt) {
  PassBlock block(stream_, 64);
  const auto a = Numbers(1, 10), b = Numbers(50, 1000);
  block.Begin();
  block.Add(std::span<const int32_t>(a));
  EXPECT_EQ(block.generation(), 0u);
  block.Add(std::span<const int32_t>(b));
  EXPECT_EQ(block.generation(), 1u);
  block.Send(block.bytes());
  EXPECT_EQ(Back(block.Find(std::span<const int32_t>(a)), 10), a);
  EXPECT_EQ(Back(block.Find(std::span<const int32_t>(b)), 1000), b);
}

}  // namespace
}  // namespace sysone
