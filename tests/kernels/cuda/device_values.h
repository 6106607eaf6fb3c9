// For tests of single kernels on the emulated device: arrays of the device, a base of tests that run in every order of threads, and
// random numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {

// An array of the device that is as long as what it is made of and ends where its memory ends. `skipped` values of it, filled with
// 0xFF, lie before data(), so that it need not start on 16 bytes.
template <class T>
class DeviceValues {
 public:
  explicit DeviceValues(std::span<const T> values, size_t skipped = 0)
      : count_(values.size()), skipped_(skipped) {
    SYSONE_CUDA(cudaMalloc(&memory_, bytes(skipped_ + count_) + 1));
    SYSONE_CUDA(cudaMemset(memory_, 0xFF, bytes(skipped_ + count_)));
    if (count_ > 0)
      SYSONE_CUDA(cudaMemcpy(data(), values.data(), bytes(count_), cudaMemcpyHostToDevice));
  }
  explicit DeviceValues(const std::vector<T>& values, size_t skipped = 0)
      : DeviceValues(std::span<const T>(values), skipped) {}
  // Uninitialised.
  explicit DeviceValues(int64_t count, size_t skipped = 0)
      : DeviceValues(std::vector<T>(static_cast<size_t>(count)), skipped) {
    SYSONE_CUDA(cudaMemset(memory_, 0xFF, bytes(skipped_ + count_)));
  }
  DeviceValues(const DeviceValues&) = delete;
  ~DeviceValues() { SYSONE_CUDA(cudaFree(memory_)); }

  T* data() const { return memory_ + skipped_; }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    SYSONE_CUDA(cudaDeviceSynchronize());
    if (count_ > 0)
      SYSONE_CUDA(cudaMemcpy(values.data(), data(), bytes(count_), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  static size_t bytes(size_t count) { return count * sizeof(T); }

  size_t count_, skipped_;
  T* memory_ = nullptr;
};

// Runs in every order of threads.
class KernelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { emulation::SetThreadOrder(emulation::OrderNamed(GetParam())); }
  void TearDown() override { EXPECT_EQ(emulation::TakeFault(), ""); }
};
inline std::vector<std::string> OrderNames() {
  std::vector<std::string> names;
  for (const auto& order : emulation::EveryOrder()) names.push_back(NameOf(order));
  return names;
}
inline std::string OrderTestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

inline std::vector<float> RandomValues(int64_t count, uint32_t seed, float sigma = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, sigma);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random);
  return values;
}

inline std::vector<uint16_t> AsBfloat16(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(ToBfloat16(value));
  return bits;
}
inline std::vector<float> FromBits(const std::vector<uint16_t>& bits) {
  std::vector<float> values;
  for (const uint16_t one : bits) values.push_back(FromBfloat16(one));
  return values;
}

}  // namespace sysone
