// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/staging.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

// Of each memory in the beginning: states and labels of many decisions fit.
constexpr int64_t kFirstBytes = int64_t{1} << 20;
// Large copies go in pieces of this.
constexpr size_t kPieceBytes = size_t{4} << 20;

}  // namespace

Staging::Staging(Stream& stream)
    : stream_(stream), host_(kFirstBytes), device_(kFirstBytes), results_(kFirstBytes) {}

size_t Staging::Begin(size_t bytes) {
  SYSONE_CHECK(!stream_.recording(), "a pass that is being recorded uses memory of the host");
  if (waits_ != stream_.waits()) {
    waits_ = stream_.waits();
    used_ = 0;
  }
  if (used_ + bytes > host_.bytes()) {
    stream_.Wait();
    waits_ = stream_.waits();
    used_ = 0;
    if (bytes > host_.bytes()) {
      const auto count = static_cast<int64_t>(std::max(bytes, 2 * host_.bytes()));
      host_ = PinnedArray<std::byte>(count);
      device_ = DeviceArray<std::byte>(count);
    }
  }
  return used_;
}

void Staging::Send(size_t begin, size_t end) {
  used_ = end;
  if (end > begin)
    SYSONE_CUDA(cudaMemcpyAsync(device_.data() + begin, host_.data() + begin, end - begin,
                                cudaMemcpyHostToDevice, stream_.get()));
}

void Staging::Put(std::span<const std::byte> values, void* to) {
  for (size_t done = 0; done < values.size();) {
    const std::span<const std::byte> piece =
        values.subspan(done, std::min(values.size() - done, kPieceBytes));
    const size_t at = Begin(Aligned(piece.size()));
    std::memcpy(host_.data() + at, piece.data(), piece.size());
    SYSONE_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, host_.data() + at, piece.size(),
                                cudaMemcpyHostToDevice, stream_.get()));
    used_ = at + Aligned(piece.size());
    done += piece.size();
  }
}

void Staging::Get(const void* from, std::span<std::byte> values) {
  for (size_t done = 0; done < values.size();) {
    const std::span<std::byte> piece =
        values.subspan(done, std::min(values.size() - done, kPieceBytes));
    auto* const results = Results<std::byte>(piece.size());
    SYSONE_CUDA(cudaMemcpyAsync(results, static_cast<const std::byte*>(from) + done, piece.size(),
                                cudaMemcpyDeviceToHost, stream_.get()));
    stream_.Wait();
    std::memcpy(piece.data(), results, piece.size());
    done += piece.size();
  }
}

// What an earlier call gave may still be written to, so it is waited for before it goes.
void* Staging::GrowResults(size_t bytes) {
  if (bytes > results_.bytes()) {
    stream_.Wait();
    results_ = PinnedArray<std::byte>(static_cast<int64_t>(std::max(bytes, 2 * results_.bytes())));
  }
  return results_.data();
}

}  // namespace sysone
