// Memory of the emulated device and pinned memory of the host: what is allocated, and whether somebody wrote beside it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/kernels/emulation/runtime_state.h"

namespace sysone::emulation {
namespace {

// NaN in every type of floats: what is read before it is written spoils the result, and a write of anything else shows.
constexpr unsigned char kUnwritten = 0xFF;
constexpr size_t kAlignment = 256;  // as cudaMalloc promises
constexpr size_t kGuardBytes = 4 * kAlignment;

struct Allocation {
  size_t bytes = 0;
  Memory kind = Memory::kDevice;
  int device = 0;
  unsigned char* block = nullptr;  // guard, memory, guard; null: registered memory, without guards
};

struct Memories {
  std::mutex mutex;
  std::map<const unsigned char*, Allocation> all;
  std::map<int, size_t> used;  // by device
};

Memories& TheMemories() {
  static Memories& memories = *new Memories;
  return memories;
}

// Guards and filled memory, or null.
unsigned char* NewBlock(size_t bytes) {
  const size_t whole = (bytes + 2 * kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  unsigned char* block = static_cast<unsigned char*>(std::aligned_alloc(kAlignment, whole));
  if (block) std::memset(block, kUnwritten, whole);
  return block;
}

cudaError_t Allocate(void** memory, size_t bytes, Memory kind) {
  if (!memory) return cudaErrorInvalidValue;
  *memory = nullptr;
  if (const cudaError_t error = ForbiddenWhileCapturing()) return error;
  if (bytes == 0) return cudaSuccess;
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  const int device = CurrentDevice();
  if (kind == Memory::kDevice) {
    size_t& used = memories.used[device];
    if (bytes > Settings().memory_bytes - std::min(used, Settings().memory_bytes)) {
      return cudaErrorMemoryAllocation;
    }
    used += bytes;
  }
  unsigned char* block = NewBlock(bytes);
  if (!block) return cudaErrorMemoryAllocation;
  memories.all[block + kGuardBytes] = {bytes, kind, device, block};
  *memory = block + kGuardBytes;
  return cudaSuccess;
}

void CheckGuards(const unsigned char* memory, const Allocation& allocation) {
  if (!allocation.block) return;
  const auto changed = [](unsigned char byte) { return byte != kUnwritten; };
  const unsigned char* before =
      std::find_if(allocation.block, allocation.block + kGuardBytes, changed);
  const unsigned char* behind = memory + allocation.bytes;
  const unsigned char* end = behind + kGuardBytes;
  const unsigned char* after = std::find_if(behind, end, changed);
  const unsigned char* at = before < memory ? before : after;
  if (at == end) return;
  ReportFault("something wrote to byte " + std::to_string(at - memory) + " of an allocation of " +
              std::to_string(allocation.bytes) + " bytes" +
              (allocation.kind == Memory::kPinned ? " of pinned memory" : ""));
  // Told once.
  std::memset(allocation.block, kUnwritten, kGuardBytes);
  std::memset(allocation.block + kGuardBytes + allocation.bytes, kUnwritten, kGuardBytes);
}

cudaError_t Release(void* memory, Memory kind) {
  if (!memory) return cudaSuccess;
  if (const cudaError_t error = ForbiddenWhileCapturing()) return error;
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  const auto found = memories.all.find(static_cast<unsigned char*>(memory));
  if (found == memories.all.end() || found->second.kind != kind || !found->second.block) {
    return cudaErrorInvalidValue;
  }
  const Allocation allocation = found->second;
  CheckGuards(found->first, allocation);
  if (kind == Memory::kDevice) memories.used[allocation.device] -= allocation.bytes;
  memories.all.erase(found);
  std::memset(allocation.block, kUnwritten, allocation.bytes + 2 * kGuardBytes);
  std::free(allocation.block);
  return cudaSuccess;
}

}  // namespace

Memory MemoryAt(const void* memory, size_t bytes) {
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  const unsigned char* at = static_cast<const unsigned char*>(memory);
  auto next = memories.all.upper_bound(at);
  if (next == memories.all.begin()) return Memory::kPageable;
  const auto& [begin, allocation] = *std::prev(next);
  const size_t offset = static_cast<size_t>(at - begin);
  if (offset > allocation.bytes) return Memory::kPageable;
  return offset + bytes > allocation.bytes ? Memory::kBeyond : allocation.kind;
}

void CheckGuards() {
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  for (const auto& [memory, allocation] : memories.all) CheckGuards(memory, allocation);
}

}  // namespace sysone::emulation

using namespace sysone::emulation;

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = Begin("cudaMalloc")) return End(error);
  return End(Allocate(memory, bytes, Memory::kDevice));
}

cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = Begin("cudaFree")) return End(error);
  return End(Release(memory, Memory::kDevice));
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const cudaError_t error = Begin("cudaHostAlloc")) return End(error);
  return End(Allocate(memory, bytes, Memory::kPinned));
}

cudaError_t cudaMallocHost(void** memory, size_t bytes, unsigned flags) {
  return cudaHostAlloc(memory, bytes, flags);
}

cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = Begin("cudaFreeHost")) return End(error);
  return End(Release(memory, Memory::kPinned));
}

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  if (const cudaError_t error = Begin("cudaHostRegister")) return End(error);
  if (const cudaError_t error = ForbiddenWhileCapturing()) return End(error);
  if (!memory || bytes == 0) return End(cudaErrorInvalidValue);
  if (MemoryAt(memory, bytes) != Memory::kPageable)
    return End(cudaErrorHostMemoryAlreadyRegistered);
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  memories.all[static_cast<unsigned char*>(memory)] = {bytes, Memory::kPinned, 0, nullptr};
  return End(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* memory) {
  if (const cudaError_t error = Begin("cudaHostUnregister")) return End(error);
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  const auto found = memories.all.find(static_cast<unsigned char*>(memory));
  if (found == memories.all.end() || found->second.block) {
    return End(cudaErrorHostMemoryNotRegistered);
  }
  memories.all.erase(found);
  return End(cudaSuccess);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (const cudaError_t error = Begin("cudaHostGetDevicePointer")) return End(error);
  if (MemoryAt(host, 1) != Memory::kPinned) return End(cudaErrorInvalidValue);
  *device = host;
  return End(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  if (const cudaError_t error = Begin("cudaPointerGetAttributes")) return End(error);
  const Memory kind = MemoryAt(memory, 1);
  *attributes = {};
  void* address = const_cast<void*>(memory);
  if (kind == Memory::kDevice) *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
  if (kind == Memory::kPinned) *attributes = {cudaMemoryTypeHost, 0, address, address};
  return End(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = Begin("cudaMemGetInfo")) return End(error);
  const int device = CurrentDevice();
  Memories& memories = TheMemories();
  const std::lock_guard lock(memories.mutex);
  *total = Settings().memory_bytes;
  *free = *total - std::min(*total, memories.used[device]);
  return End(cudaSuccess);
}
