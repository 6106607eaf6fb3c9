// Memory of the device and pinned memory of the host, owned; and what becomes of a CUDA call that fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace sysone {

// Of the calling thread's current device. A failure aborts with the size asked for and what is free: whoever may ask for too
// much asks DeviceMemoryNow before.
void* AllocateDevice(size_t bytes);
void FreeDevice(void* memory);
// Page-locked, visible to the device.
void* AllocatePinned(size_t bytes);
void FreePinned(void* memory);

// `count` values in the memory that Allocate gives, uninitialised. Moves, does not copy.
template <class T, void* (*Allocate)(size_t), void (*Free)(void*)>
class OwnedArray {
 public:
  OwnedArray() = default;
  explicit OwnedArray(int64_t count)
      : data_(count > 0 ? static_cast<T*>(Allocate(static_cast<size_t>(count) * sizeof(T)))
                        : nullptr),
        count_(count) {}
  OwnedArray(OwnedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  OwnedArray& operator=(OwnedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~OwnedArray() {
    if (data_) Free(data_);
  }

  T* data() const { return data_; }
  int64_t count() const { return count_; }
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(T); }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

template <class T>
using DeviceArray = OwnedArray<T, AllocateDevice, FreeDevice>;
template <class T>
using PinnedArray = OwnedArray<T, AllocatePinned, FreePinned>;

struct DeviceMemory {
  int64_t free = 0, total = 0;  // bytes
};
// Of the calling thread's current device, other processes' use included.
DeviceMemory DeviceMemoryNow();

}  // namespace sysone
