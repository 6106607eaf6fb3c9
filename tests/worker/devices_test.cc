// SPDX-License-Identifier: Apache-2.0
#include "worker/devices.h"

#include <gtest/gtest.h>

#include <set>

namespace sysone {
namespace {

ServeOptions Groups(int groups, int ranks, int group = 0) {
  ServeOptions options;
  options.data_parallel_size = groups;
  options.tensor_parallel_size = ranks;
  options.role_index = group;
  return options;
}

TEST(DeviceOf, GivesEveryRankOfEveryGroupOfTheMachineItsOwn) {
  std::set<int> devices;
  for (int group = 0; group < 3; ++group)
    for (int rank = 0; rank < 2; ++rank) {
      const auto device = DeviceOf(Groups(3, 2, group), {rank, 2}, 6);
      ASSERT_TRUE(device.ok()) << device.status().message();
      devices.insert(*device);
    }
  EXPECT_EQ(devices, (std::set<int>{0, 1, 2, 3, 4, 5}));
}

TEST(DeviceOf, CountsTheRanksOfThisMachineAlone) {
  // Four ranks over two machines; the groups of other hosts have devices of their own, too.
  EXPECT_EQ(*DeviceOf(Groups(1, 4), {1, 2}, 2), 1);
  ServeOptions options = Groups(2, 1);
  options.data_parallel_size_local = 1;
  EXPECT_EQ(*DeviceOf(options, {}, 1), 0);
}

TEST(DeviceOf, RefusesMoreRanksThanDevicesAndNamesBothNumbers) {
  auto device = DeviceOf(Groups(1, 4), {0, 4}, 2);
  EXPECT_EQ(device.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(device.status().message(),
            "4 ranks of each of 1 group on this machine need 4 GPUs, one each, and 2 are visible "
            "(CUDA_VISIBLE_DEVICES may hide some); take a smaller --tensor-parallel-size");
  device = DeviceOf(Groups(2, 1), {}, 1);
  EXPECT_EQ(device.status().message(),
            "1 rank of each of 2 groups on this machine needs 2 GPUs, one each, and 1 are visible "
            "(CUDA_VISIBLE_DEVICES may hide some); take a smaller --tensor-parallel-size or "
            "--data-parallel-size");
}

TEST(DeviceOf, WithoutADeviceSaysWhereToLook) {
  const auto device = DeviceOf(Groups(1, 1), {}, 0);
  EXPECT_EQ(device.status().code(), Code::kUnsupported);
  EXPECT_NE(device.status().message().find("CUDA_VISIBLE_DEVICES"), std::string::npos);
}

TEST(LocalPlaceOf, IsTheLaunchersWordForGroupsAlone) {
  LaunchPlace place;
  place.rank = 3;
  place.world = 4;
  place.local_rank = 1;
  place.local_world = 2;
  EXPECT_EQ(LocalPlaceOf(Groups(1, 4), place).rank, 1);
  EXPECT_EQ(LocalPlaceOf(Groups(1, 4), place).ranks, 2);
  // Somebody else's launcher, which started `sysone serve` itself.
  EXPECT_EQ(LocalPlaceOf(Groups(1, 1), place).rank, 0);
  EXPECT_EQ(LocalPlaceOf(Groups(1, 1), place).ranks, 1);
  place.local_world = 0;
  EXPECT_EQ(LocalPlaceOf(Groups(1, 4), place).rank, 3);
  EXPECT_EQ(LocalPlaceOf(Groups(1, 4), place).ranks, 4);
}

TEST(BackendOptionsOf, CarryTheFlags) {
  ServeOptions options;
  EXPECT_TRUE(BackendOptionsOf(options).graphs);
  EXPECT_FALSE(BackendOptionsOf(options).batch_invariant);
  EXPECT_EQ(BackendOptionsOf(options).memory_utilization, 0.9);
  options.enforce_eager = options.batch_invariant = true;
  options.gpu_memory_utilization = 0.5;
  options.dtype = "fp8";
  options.threads = 3;
  const BackendOptions backend = BackendOptionsOf(options);
  EXPECT_FALSE(backend.graphs);
  EXPECT_TRUE(backend.batch_invariant);
  EXPECT_EQ(backend.memory_utilization, 0.5);
  EXPECT_EQ(backend.dtype, "fp8");
  EXPECT_EQ(backend.threads, 3);
}

}  // namespace
}  // namespace sysone
