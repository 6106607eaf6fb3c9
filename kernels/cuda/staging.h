// Host memory on its way to the device, and results on their way back, outside of a pass that runs as a whole. What is given is
// copied to page-locked memory at once, so the caller may reuse it; what is fetched is there when the call returns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <tuple>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/stream.h"

namespace sysone {

class Staging {
 public:
  explicit Staging(Stream& stream);

  // Device copies of `values`, made in one piece; valid for what is put into the stream before the next call.
  template <class... T>
  std::tuple<const T*...> Put(std::span<const T>... values) {
    size_t offset = Begin((Aligned(values.size_bytes()) + ... + size_t{0}));
    const size_t first = offset;
    std::tuple<const T*...> placed{Place(values, offset)...};
    Send(first, offset);
    return placed;
  }

  // Copies to device memory.
  void Put(std::span<const std::byte> values, void* to);
  // Copies from device memory, and waits.
  void Get(const void* from, std::span<std::byte> values);

  // Page-locked memory that kernels write small results to; they are there after Stream::Wait. Until the next call.
  template <class T>
  T* Results(size_t count) {
    return static_cast<T*>(GrowResults(count * sizeof(T)));
  }

 private:
  static constexpr size_t Aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

  // Where in both memories `bytes` are free.
  size_t Begin(size_t bytes);
  template <class T>
  const T* Place(std::span<const T> values, size_t& offset) {
    const size_t at = offset;
    if (!values.empty()) std::memcpy(host_.data() + at, values.data(), values.size_bytes());
    offset += Aligned(values.size_bytes());
    return reinterpret_cast<const T*>(device_.data() + at);
  }
  void Send(size_t begin, size_t end);
  void* GrowResults(size_t bytes);

  Stream& stream_;
  PinnedArray<std::byte>
      host_;  // of values on the way; used from the front on until the stream was waited for
  DeviceArray<std::byte> device_;  // likewise
  size_t used_ = 0;
  uint64_t waits_ = 0;  // of the stream, when used_ began at 0
  PinnedArray<std::byte> results_;
};

}  // namespace sysone
