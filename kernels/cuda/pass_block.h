// The memory through which the inputs of a pass reach the device in one copy: one block of page-locked memory, a twin of it on the
// device, and for every span of the host's that was put in, where its twin is. A recorded pass has addresses and sizes of the
// block in it, so the layout may depend on the pass's size alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/stream.h"

namespace sysone {

class PassBlock {
 public:
  PassBlock(Stream& stream, int64_t first_bytes);

  // Empties it, once the pass before has taken what is in it.
  void Begin();
  // Room behind what is there, on 16 bytes; gives its offset. May move the block: then generation() changes.
  size_t Reserve(size_t bytes);
  // Puts values in and remembers where they came from.
  template <class T>
  void Add(std::span<const T> values) {
    const size_t offset = Reserve(values.size_bytes());
    if (values.empty()) return;
    std::memcpy(Host(offset), values.data(), values.size_bytes());
    regions_.push_back(
        {reinterpret_cast<const std::byte*>(values.data()), values.size_bytes(), offset});
  }

  size_t bytes() const { return used_; }
  std::byte* Host(size_t offset) const { return host_.data() + offset; }
  std::byte* Device(size_t offset) const { return device_.data() + offset; }

  // Puts the copy of the first `bytes` into the stream; they may be more than were put in.
  void Send(size_t bytes);
  // The same was done by a recorded pass.
  void MarkSent();

  // The twin of values that were put in; null if they were not, or are none.
  template <class T>
  const T* Find(std::span<const T> values) const {
    return reinterpret_cast<const T*>(
        Find(reinterpret_cast<const std::byte*>(values.data()), values.size_bytes()));
  }

  // Another number whenever the block moved.
  uint64_t generation() const { return generation_; }

 private:
  struct Region {
    const std::byte* from;
    size_t bytes;
    size_t offset;
  };
  const std::byte* Find(const std::byte* from, size_t bytes) const;

  Stream& stream_;
  PinnedArray<std::byte> host_;
  DeviceArray<std::byte> device_;
  size_t used_ = 0;
  std::vector<Region> regions_;
  uint64_t generation_ = 0;
  bool sent_ = false;        // since Begin
  uint64_t sent_waits_ = 0;  // the stream's, then
};

}  // namespace sysone
