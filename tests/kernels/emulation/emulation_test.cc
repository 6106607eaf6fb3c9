// The emulated device does what a CUDA device does, and tells of kernels that are wrong.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulation/emulation.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone::emulation {
namespace {

TEST(EmulationTest, AKernelGivesTheSameInEveryOrder) {
  constexpr int kBlocks = 5;
  std::vector<float> in(kBlocks * 64), out(kBlocks);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 37);
  float *device_in = nullptr, *device_out = nullptr;
  SYSONE_CUDA(cudaMalloc(&device_in, in.size() * sizeof(float)));
  SYSONE_CUDA(cudaMalloc(&device_out, out.size() * sizeof(float)));
  SYSONE_CUDA(cudaMemcpy(device_in, in.data(), in.size() * sizeof(float), cudaMemcpyHostToDevice));
  for (const ThreadOrder& order : EveryOrder()) {
    SetThreadOrder(order);
    SYSONE_CUDA(cudaMemset(device_out, 0xFF, out.size() * sizeof(float)));
    LaunchBlockSums(device_in, kBlocks, device_out, nullptr);
    SYSONE_CUDA(
        cudaMemcpy(out.data(), device_out, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t block = 0; block < kBlocks; ++block) {
      float sum = 0;
      for (size_t i = 0; i < 64; ++i) sum += in[block * 64 + i];
      EXPECT_EQ(out[block], sum) << NameOf(order);
    }
  }
  SYSONE_CUDA(cudaFree(device_in));
  SYSONE_CUDA(cudaFree(device_out));
}

}  // namespace
}  // namespace sysone::emulation
