// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/pass_block.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/launch.h"

namespace sysone {

PassBlock::PassBlock(Stream& stream, int64_t first_bytes)
    : stream_(stream), host_(first_bytes), device_(first_bytes) {}

void PassBlock::Begin() {
  // Whoever reads the results of a pass has waited for it already.
  if (sent_ && sent_waits_ == stream_.waits()) stream_.Wait();
  sent_ = false;
  used_ = 0;
  regions_.clear();
}

size_t PassBlock::Reserve(size_t bytes) {
  SYSONE_CHECK(!sent_, "the inputs of a pass are on their way");
  const size_t offset = used_;
  used_ += (bytes + 15) / 16 * 16;
  if (used_ > host_.bytes()) {
    const auto count = static_cast<int64_t>(std::max(used_, 2 * host_.bytes()));
    PinnedArray<std::byte> grown(count);
    std::memcpy(grown.data(), host_.data(), offset);
    // A pass that reads the old memory may still run.
    stream_.Wait();
    host_ = std::move(grown);
    device_ = DeviceArray<std::byte>(count);
    ++generation_;
  }
  return offset;
}

void PassBlock::Send(size_t bytes) {
  SYSONE_CHECK(bytes >= used_ && bytes <= host_.bytes(), "%zu bytes of inputs, %zu to send of %zu",
               used_, bytes, host_.bytes());
  MarkSent();
  if (bytes > 0)
    SYSONE_CUDA(cudaMemcpyAsync(device_.data(), host_.data(), bytes, cudaMemcpyHostToDevice,
                                stream_.get()));
}

void PassBlock::MarkSent() {
  sent_ = true;
  sent_waits_ = stream_.waits();
}

const std::byte* PassBlock::Find(const std::byte* from, size_t bytes) const {
  if (bytes == 0) return nullptr;
  for (const Region& region : regions_)
    if (from >= region.from && from + bytes <= region.from + region.bytes)
      return device_.data() + region.offset + (from - region.from);
  return nullptr;
}

}  // namespace sysone
