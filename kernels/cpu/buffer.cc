// Anonymous mappings behind Buffer.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace sysone {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kTail = 64;

}  // namespace

Buffer::Buffer(size_t bytes) {
  // A huge page for something small would waste more than it gains.
  const size_t page = bytes >= kHugePage / 2 ? kHugePage : kPage;
  // What the last huge page would hold beyond the end stays in small pages: over all weights of a
  // model of 1.5 billion that is 200 MiB.
  const size_t rounded = (bytes + kTail + kPage - 1) / kPage * kPage;
  mapped_bytes_ = page == kHugePage ? rounded + kHugePage : rounded;  // room to align
  void* const mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SYSONE_CHECK(mapping != MAP_FAILED, "no memory for %zu bytes: %s", bytes, std::strerror(errno));
  mapping_ = mapping;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  data_ = static_cast<std::byte*>(mapping) + ((address + page - 1) / page * page - address);
  if (page == kHugePage) madvise(data_, rounded, MADV_HUGEPAGE);  // a refusal costs speed only
#ifdef MADV_POPULATE_WRITE
  if (madvise(data_, rounded, MADV_POPULATE_WRITE) == 0) return;
  SYSONE_CHECK(errno != ENOMEM, "no memory for %zu bytes: %s", bytes, std::strerror(errno));
#endif
  for (size_t at = 0; at < rounded; at += kPage) data_[at] = std::byte{0};  // kernels before 5.14
}

Buffer::~Buffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace sysone
