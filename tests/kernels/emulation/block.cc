// The fibers of a block and who of them goes on. See block.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulation/block.h"

#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <boost/context/detail/fcontext.hpp>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/kernels/emulation/device_functions.h"
#include "tests/kernels/emulation/emulation.h"
#include "tests/kernels/emulation/runtime_state.h"

constinit __thread uint3 threadIdx = {};
constinit __thread uint3 blockIdx = {};
constinit __thread dim3 blockDim;
constinit __thread dim3 gridDim;

// Before and behind a block's shared memory lies what tells of writes there.
namespace {
constexpr size_t kGuardBytes = 4096;
constexpr unsigned char kUnwritten = 0xFF;  // NaN in every type of floats
}  // namespace
extern "C" {
__thread __attribute__((aligned(1024))) unsigned char
    sysone_emulated_shared[kGuardBytes + sysone::emulation::kMostSharedBytes + kGuardBytes];
}
// `extern __shared__ unsigned char shared_memory[]` in a function names a variable of the namespace around it: sysone's, or its
// unnamed one. CUDA takes both for the block's memory, so both are names of what lies between the guards.
static_assert(kGuardBytes == 4096, "as below");
__asm__(
    ".globl _ZN6sysone13shared_memoryE\n"
    ".set _ZN6sysone13shared_memoryE, sysone_emulated_shared + 4096\n"
    ".globl _ZN6sysone12_GLOBAL__N_113shared_memoryE\n"
    ".set _ZN6sysone12_GLOBAL__N_113shared_memoryE, sysone_emulated_shared + 4096\n");

namespace sysone::emulation {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr uint32_t kMostThreads = 1024;
constexpr uint32_t kLanes = 32;
constexpr size_t kStackBytes = 256 * 1024;  // only what is touched takes memory

// What a thread waits for; lies on its stack.
struct Wait {
  const char* what;
  uint32_t mask;  // 0: the whole block
  void* brought;
  Place place;
};

struct Fiber {
  fcontext_t context = nullptr;
  uint3 index = {};
  const Wait* wait = nullptr;
  bool ended = false;
};

std::string Line(const Place& place) {
  const char* slash = std::strrchr(place.file_name(), '/');
  return std::string(slash ? slash + 1 : place.file_name()) + ":" + std::to_string(place.line());
}

// Stacks of the fibers of one host thread, made once.
class Stacks {
 public:
  Stacks() {
    void* memory = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SYSONE_CHECK(memory != MAP_FAILED, "no memory for the stacks of %u threads", kMostThreads);
    base_ = static_cast<unsigned char*>(memory);
    for (uint32_t i = 0; i < kMostThreads; ++i) mprotect(base_ + i * kStackBytes, 4096, PROT_NONE);
  }
  ~Stacks() { munmap(base_, kStackBytes * kMostThreads); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  // To be called when threads were left in the middle: the address sanitizer still knows their variables.
  void Forget() {
#if defined(__SANITIZE_ADDRESS__)
    for (uint32_t i = 0; i < kMostThreads; ++i) {
      __asan_unpoison_memory_region(base_ + i * kStackBytes, kStackBytes);
    }
#endif
  }

  // Stacks grow down. They begin at different offsets, or the frames of all threads would want the same lines of the cache.
  void* Top(uint32_t thread) const {
    return base_ + (thread + 1) * kStackBytes - (thread % 61) * 320 - 64;
  }

 private:
  unsigned char* base_;
};

class Block {
 public:
  // Whether it ran to its end.
  bool Run(const KernelCall& call, const ThreadOrder& order, uint64_t number);

  void WaitForBlock(const Place& place);
  void WaitForLanes(const char* what, uint32_t mask, void* brought, AllLanes all,
                    const Place& place);
  [[noreturn]] void Fail(const std::string& fault);
  bool Running() const { return call_ != nullptr; }
  size_t shared_bytes() const { return call_->shared_bytes; }

 private:
  static void Enter(transfer_t from);
  void Start(const KernelCall& call);
  uint32_t Next(const ThreadOrder& order);
  void Resume(uint32_t thread);
  void Yield() { scheduler_ = jump_fcontext(scheduler_, nullptr).fctx; }
  void Pause(const Wait& wait);
  void Wake(uint32_t thread);
  uint32_t LanesOf(uint32_t warp) const {
    return threads_ - warp * kLanes >= kLanes ? ~0u : (1u << (threads_ - warp * kLanes)) - 1;
  }
  std::string WhoWaits() const;

  Stacks stacks_;
  std::array<Fiber, kMostThreads> fibers_;
  std::array<uint32_t, kMostThreads / kLanes> ready_ = {};   // by warp, a bit a lane
  std::array<uint32_t, kMostThreads / kLanes> called_ = {};  // likewise: waits for lanes
  uint32_t ready_warps_ = 0;                                 // a bit a warp
  uint32_t threads_ = 0, ended_ = 0, at_barrier_ = 0, current_ = 0;
  uint64_t random_ = 0;
  const KernelCall* call_ = nullptr;
  fcontext_t scheduler_ = nullptr;
  bool failed_ = false;
};

// Of the calling host thread.
Block& ThisBlock() {
  static thread_local Block block;
  return block;
}

void Block::Enter(transfer_t from) {
  Block& block = *static_cast<Block*>(from.data);
  block.scheduler_ = from.fctx;
  block.call_->thread();
  block.fibers_[block.current_].ended = true;
  ++block.ended_;
  block.Yield();
}

void Block::Start(const KernelCall& call) {
  call_ = &call;
  threads_ = call.block.x * call.block.y * call.block.z;
  ended_ = at_barrier_ = 0;
  failed_ = false;
  ready_.fill(0), called_.fill(0);
  ready_warps_ = 0;
  for (uint32_t i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.context = make_fcontext(stacks_.Top(i), kStackBytes / 2, Enter);
    fiber.index = {i % call.block.x, i / call.block.x % call.block.y,
                   i / (call.block.x * call.block.y)};
    fiber.wait = nullptr;
    fiber.ended = false;
    Wake(i);
  }
  current_ = threads_ - 1;
}

uint32_t Block::Next(const ThreadOrder& order) {
  const auto low = [](uint32_t bits) { return static_cast<uint32_t>(std::countr_zero(bits)); };
  const auto high = [](uint32_t bits) {
    return 31 - static_cast<uint32_t>(std::countl_zero(bits));
  };
  switch (order.kind) {
    case ThreadOrder::Kind::kForward: {
      const uint32_t warp = low(ready_warps_);
      return warp * kLanes + low(ready_[warp]);
    }
    case ThreadOrder::Kind::kBackward: {
      const uint32_t warp = high(ready_warps_);
      return warp * kLanes + high(ready_[warp]);
    }
    case ThreadOrder::Kind::kInTurn: {
      const uint32_t warp = current_ / kLanes, lane = current_ % kLanes;
      if (const uint32_t later = ready_[warp] & ~(~0u >> (31 - lane))) {
        return warp * kLanes + low(later);
      }
      const uint32_t later_warps = ready_warps_ & ~(~0u >> (31 - warp));
      const uint32_t next = low(later_warps ? later_warps : ready_warps_);
      return next * kLanes + low(ready_[next]);
    }
    case ThreadOrder::Kind::kShuffled:
      break;
  }
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX
  const int by_warp = static_cast<int>(random_ >> 59), by_lane = static_cast<int>(random_ >> 54);
  const uint32_t warp =
      (low(std::rotr(ready_warps_, by_warp)) + static_cast<uint32_t>(by_warp)) % 32;
  const uint32_t lane =
      (low(std::rotr(ready_[warp], by_lane % 32)) + static_cast<uint32_t>(by_lane)) % 32;
  return warp * kLanes + lane;
}

void Block::Wake(uint32_t thread) {
  fibers_[thread].wait = nullptr;
  ready_[thread / kLanes] |= 1u << (thread % kLanes);
  ready_warps_ |= 1u << (thread / kLanes);
}

void Block::Resume(uint32_t thread) {
  current_ = thread;
  const uint32_t warp = thread / kLanes;
  ready_[warp] &= ~(1u << (thread % kLanes));
  if (ready_[warp] == 0) ready_warps_ &= ~(1u << warp);
  threadIdx = fibers_[thread].index;
  fibers_[thread].context = jump_fcontext(fibers_[thread].context, this).fctx;
}

bool Block::Run(const KernelCall& call, const ThreadOrder& order, uint64_t number) {
  Start(call);
  random_ = (order.seed + 1) * 0x9E3779B97F4A7C15u + number;
  std::memset(sysone_emulated_shared, kUnwritten, kGuardBytes + call.shared_bytes + kGuardBytes);
  while (ended_ < threads_ && !failed_) {
    if (ready_warps_ == 0) {
      failed_ = true;
      ReportFault("the kernel stands still: " + WhoWaits());
      break;
    }
    Resume(Next(order));
  }
  call_ = nullptr;
  if (failed_) {
    stacks_.Forget();
    return false;
  }
  const unsigned char* shared = sysone_emulated_shared + kGuardBytes;
  for (const unsigned char* guard : {shared - kGuardBytes, shared + call.shared_bytes}) {
    const auto written = std::find_if(guard, guard + kGuardBytes,
                                      [](unsigned char byte) { return byte != kUnwritten; });
    if (written == guard + kGuardBytes) continue;
    ReportFault("the kernel wrote to byte " + std::to_string(written - shared) +
                " of its shared memory of " + std::to_string(call.shared_bytes) + " bytes");
    return false;
  }
  return true;
}

void Block::Pause(const Wait& wait) {
  fibers_[current_].wait = &wait;
  Yield();
}

void Block::WaitForBlock(const Place& place) {
  const Wait wait{"__syncthreads", 0, nullptr, place};
  ++at_barrier_;
  for (uint32_t i = 0; at_barrier_ == threads_ && i < threads_; ++i) {
    const Wait* other = fibers_[i].wait;
    if (other && (other->place.line() != place.line() ||
                  std::strcmp(other->place.file_name(), place.file_name()) != 0)) {
      Fail("thread " + std::to_string(i) + " waits at the __syncthreads of " + Line(other->place) +
           ", thread " + std::to_string(current_) + " at that of " + Line(place));
    }
  }
  if (at_barrier_ == threads_) {
    at_barrier_ = 0;
    for (uint32_t i = 0; i < threads_; ++i) Wake(i);
    return Yield();
  }
  Pause(wait);
}

void Block::WaitForLanes(const char* what, uint32_t mask, void* brought, AllLanes all,
                         const Place& place) {
  const uint32_t warp = current_ / kLanes, lane = current_ % kLanes, first = warp * kLanes;
  const auto here = [&] { return std::string(what) + " of " + Line(place); };
  if (!(mask >> lane & 1))
    Fail("lane " + std::to_string(lane) + " is not in its own mask at " + here());
  if (mask & ~LanesOf(warp)) Fail("the mask names lanes that the block does not have at " + here());
  const Wait wait{what, mask, brought, place};
  fibers_[current_].wait = &wait;
  called_[warp] |= 1u << lane;
  if ((called_[warp] & mask) != mask) return Yield();

  void* brought_by[kLanes] = {};
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t other = static_cast<uint32_t>(std::countr_zero(rest));
    const Wait& theirs = *fibers_[first + other].wait;
    if (theirs.mask != mask || theirs.place.line() != place.line() ||
        std::strcmp(theirs.what, what) != 0) {
      Fail("lanes of a warp disagree: lane " + std::to_string(other) + " is at " + theirs.what +
           " of " + Line(theirs.place) + ", lane " + std::to_string(lane) + " at " + here() +
           (theirs.mask != mask ? ", with other masks" : ""));
    }
    brought_by[other] = theirs.brought;
  }
  all(brought_by, mask);
  called_[warp] &= ~mask;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    Wake(first + static_cast<uint32_t>(std::countr_zero(rest)));
  }
  Yield();
}

void Block::Fail(const std::string& fault) {
  failed_ = true;
  ReportFault(fault + ", thread " + std::to_string(current_) + " of block (" +
              std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
              std::to_string(blockIdx.z) + ")");
  Yield();
  SYSONE_CHECK(false, "a thread of a failed kernel went on");
}

// Threads side by side that wait for the same are named together.
std::string Block::WhoWaits() const {
  std::string text;
  const auto state = [this](uint32_t i) {
    if (fibers_[i].ended) return std::string("have ended");
    const Wait& wait = *fibers_[i].wait;
    char mask[32] = "";
    if (wait.mask != 0) std::snprintf(mask, sizeof mask, " (mask %08x)", wait.mask);
    return std::string("wait at ") + wait.what + mask + " of " + Line(wait.place);
  };
  for (uint32_t first = 0; first < threads_;) {
    const std::string what = state(first);
    uint32_t end = first + 1;
    while (end < threads_ && state(end) == what) ++end;
    text += (text.empty() ? "threads " : ", threads ") + std::to_string(first);
    if (end - first > 1) text += " to " + std::to_string(end - 1);
    text += " " + what;
    first = end;
    if (text.size() > 600 && first < threads_) return text + " …";
  }
  return text;
}

}  // namespace

void RunGrid(const KernelCall& call) {
  const ThreadOrder order = CurrentOrder();
  const uint64_t blocks = uint64_t{call.grid.x} * call.grid.y * call.grid.z;
  gridDim = call.grid;
  blockDim = call.block;
  // A step that has no divisor in common with the count comes to every block.
  uint64_t step = 1;
  if (order.kind == ThreadOrder::Kind::kShuffled) {
    for (step = blocks / 3 + 1 + order.seed % 7; std::gcd(step, blocks) != 1;) ++step;
  }
  for (uint64_t i = 0; i < blocks; ++i) {
    uint64_t number = i * step % blocks;
    if (order.kind == ThreadOrder::Kind::kBackward) number = blocks - 1 - i;
    blockIdx = {static_cast<unsigned>(number % call.grid.x),
                static_cast<unsigned>(number / call.grid.x % call.grid.y),
                static_cast<unsigned>(number / call.grid.x / call.grid.y)};
    if (!ThisBlock().Run(call, order, number)) return;
  }
}

void WaitForBlock(const Place& place) { ThisBlock().WaitForBlock(place); }

void WaitForLanes(const char* what, uint32_t mask, void* brought, AllLanes all,
                  const Place& place) {
  ThisBlock().WaitForLanes(what, mask, brought, all, place);
}

void FailKernel(const std::string& fault, const Place& place) {
  ThisBlock().Fail(fault + " at " + Line(place));
}

bool InSharedMemory(const void* address, size_t bytes) {
  const unsigned char* at = static_cast<const unsigned char*>(address);
  const unsigned char* shared = sysone_emulated_shared + kGuardBytes;
  return at >= shared && at + bytes <= shared + ThisBlock().shared_bytes();
}

}  // namespace sysone::emulation
