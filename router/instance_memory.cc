// SPDX-License-Identifier: Apache-2.0
#include "router/instance_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/check.h"

namespace sysone {

InstanceMemory::InstanceMemory() {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  SYSONE_CHECK(memory != MAP_FAILED, "mmap of %zu bytes: %s", sizeof(Shared), strerror(errno));
  shared_ = new (memory) Shared{};
}

InstanceMemory::~InstanceMemory() { munmap(shared_, sizeof(Shared)); }

const SupervisionRecord& InstanceMemory::record() const {
  return shared_->records[shared_->current.load(std::memory_order_acquire)];
}

void InstanceMemory::Save(const SupervisionRecord& record) {
  const uint32_t other = 1 - shared_->current.load(std::memory_order_relaxed);
  shared_->records[other] = record;
  // Release: no part of the copy moves behind it. Until here the old record holds.
  shared_->current.store(other, std::memory_order_release);
}

void InstanceMemory::AskToStop(int requests, int64_t now_us) {
  if (requests == 0) return;
  int64_t never = 0;
  // First: whoever sees a request finds its time.
  shared_->first_stop_us.compare_exchange_strong(never, std::max<int64_t>(now_us, 1));
  int known = shared_->stop_requests.load();
  while (known < requests && !shared_->stop_requests.compare_exchange_weak(known, requests)) {
  }
}

int InstanceMemory::stop_requests() const { return shared_->stop_requests.load(); }

int64_t InstanceMemory::first_stop_us() const { return shared_->first_stop_us.load(); }

}  // namespace sysone
