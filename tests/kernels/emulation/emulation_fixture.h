// What the tests of the emulated device begin with.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone::emulation {

// Leaves the device as it was, whatever a test does to it.
class EmulationFixture : public testing::Test {
 protected:
  ~EmulationFixture() override {
    EXPECT_EQ(TakeFault(), "");
    SetThreadOrder({});
    SetWorkTime(WorkTime::kAtOnce);
    SetDevices(1, size_t{8} << 30, 90);
  }
};

// Values on the device; gone with it, even where a fault has made all calls fail.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    SYSONE_CUDA(cudaMalloc(&values_, bytes()));
    SYSONE_CUDA(cudaMemcpy(values_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  explicit OnDevice(size_t count) : count_(count) { SYSONE_CUDA(cudaMalloc(&values_, bytes())); }
  ~OnDevice() { cudaFree(values_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return values_; }
  size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    SYSONE_CUDA(cudaMemcpy(values.data(), values_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* values_ = nullptr;
  size_t count_;
};

// A stream of its own.
class OwnStream {
 public:
  OwnStream() { SYSONE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace sysone::emulation
