// Zeroed memory for weights and activations: anonymous (a mapped file could be evicted), in 2 MiB
// pages where the kernel has them (+25–70 % read bandwidth on weights), resident from the start so
// that no pass pays for page faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace sysone {

class Buffer {
 public:
  Buffer() = default;
  // Aborts with the size in the message if the machine has no such memory: whoever loads a model
  // compares the sum with the free memory first, where it can still be said which setting to
  // change.
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
    return *this;
  }

  // Aligned to 64 bytes at least; 64 readable bytes follow the end.
  template <class T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

// How many groups of `unit` hold `count`, and what those groups hold; count ≥ 0, unit ≥ 1.
constexpr int64_t DivideUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }
constexpr int64_t RoundUp(int64_t count, int64_t unit) { return DivideUp(count, unit) * unit; }

// Elements from one row to the next: whole cache lines, and never a multiple of 4 KiB, because the
// rows of a tile would then compete for the same few cache sets.
template <class T>
int64_t RowStride(int64_t cols) {
  constexpr int64_t kLine = 64 / sizeof(T), kPage = 4096 / sizeof(T);
  const int64_t stride = RoundUp(cols, kLine);
  return stride % kPage == 0 ? stride + kLine : stride;
}

}  // namespace sysone
