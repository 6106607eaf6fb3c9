// The emulated device tells what a stream is given.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone::emulation {
namespace {

TEST(ObserverTest, LaunchesAreToldInTheirOrderAndKernelsAreNotRun) {
  SetThreadOrder({});
  const std::vector<float> in(128, 1.0f);
  std::vector<float> out(2, 7.0f);
  float *device_in = nullptr, *device_out = nullptr;
  SYSONE_CUDA(cudaMalloc(&device_in, in.size() * sizeof(float)));
  SYSONE_CUDA(cudaMalloc(&device_out, out.size() * sizeof(float)));
  const size_t bytes = out.size() * sizeof(float);
  SYSONE_CUDA(cudaMemcpy(device_out, out.data(), bytes, cudaMemcpyHostToDevice));
  std::vector<Launched> told;
  ObserveLaunches([&](const Launched& launched) { told.push_back(launched); });
  SYSONE_CUDA(cudaMemcpy(device_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  LaunchBlockSums(device_in, 2, device_out, nullptr);
  SYSONE_CUDA(cudaMemcpy(out.data(), device_out, bytes, cudaMemcpyDeviceToHost));
  ObserveLaunches({});
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].kind, Launched::Kind::kCopy);
  EXPECT_EQ(told[1].kind, Launched::Kind::kKernel);
  EXPECT_NE(told[1].kernel, nullptr);
  EXPECT_EQ(told[1].grid.x, 2u);
  EXPECT_EQ(told[2].kind, Launched::Kind::kCopy);
  EXPECT_EQ(out[0], 7.0f);

  LaunchBlockSums(device_in, 2, device_out, nullptr);
  SYSONE_CUDA(cudaMemcpy(out.data(), device_out, bytes, cudaMemcpyDeviceToHost));
  EXPECT_EQ(out[0], 64.0f);
  EXPECT_EQ(told.size(), 3u);
  SYSONE_CUDA(cudaFree(device_in));
  SYSONE_CUDA(cudaFree(device_out));
}

}  // namespace
}  // namespace sysone::emulation
