// The slots of the arena: who owns which payload block, and the life of a job in it (slot_word.h
// draws the states). There is no free list: a slot is claimed by a compare-and-swap on its own
// word, so there is no moment at which a dying process holds a slot that no word names.
//
// Every transition is one compare-and-swap; it returns false and changes nothing when the slot is
// in another state or generation (stale notice, owner gave up, router took it back). Any thread of
// any process may call; who is meant to call what is said at each function.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "shm_arena/counters.h"
#include "shm_arena/ids.h"
#include "shm_arena/layout.h"
#include "shm_arena/load_board.h"
#include "shm_arena/notice_board.h"
#include "shm_arena/slot_word.h"
#include "shm_arena/wake_socket.h"

namespace sysone {

// The places between two steps at which tests stop or kill a process.
enum class SlotStep : uint32_t {
  kClaimed,         // Claim: the word is ours, nothing counted yet
  kPublishFilled,   // Publish: header fields written, not yet READY
  kPublished,       // Publish: READY, the caller has not rung yet
  kTaken,           // Take: RUNNING
  kResultFilled,    // Complete, Fail: code written, not yet DONE
  kCompleted,       // Complete, Fail: DONE, the owner not yet told
  kReturnedUntold,  // ReturnGroup: RETURNED, the owner not yet told
};

struct PublishOptions {
  int64_t now_us = 0;       // MonotonicUs: start of the queue time
  int64_t deadline_us = 0;  // MonotonicUs; 0 = none
  int32_t priority = 0;     // lower runs first
  uint32_t used_bytes = 0;  // of the payload
};

// The header fields of a published slot.
struct SlotInfo {
  ProcessId owner = ProcessId::kNone;
  uint64_t publish_sequence = 0;
  int64_t publish_us = 0;
  int64_t deadline_us = 0;
  int32_t priority = 0;
  uint32_t used_bytes = 0;
};

struct SlotOutcome {
  // kDone, kFailed, kReturned: the job has ended, here at least. kReady, kRunning: it has not. kFree: the slot is no longer
  // ours (the router took this process for dead).
  SlotState state = SlotState::kFree;
  Code code = Code::kOk;  // of kFailed
};

struct ClassUsage {
  uint64_t block_bytes = 0;
  uint32_t slots = 0;
  uint32_t in_use = 0;      // counted by scanning, so it cannot drift
  uint32_t high_water = 0;  // largest in_use that any scan saw; = slots after a refusal
};

class SlotPool {
 public:
  // `base` is the start of a formatted arena; `process` is whose metrics shard counts.
  SlotPool(std::byte* base, ProcessId process);
  // `waker`, which outlives the pool, wakes owners that sleep on their socket. Before other threads use the pool.
  void SetWaker(const ProcessWaker* waker) { waker_ = waker; }

  // ---- owner (API server) ----
  // A slot of the smallest class that fits `payload_bytes` and has one free, larger classes after
  // it. kTooLarge when no class fits; kUnavailable when all that fit are taken (back-pressure).
  Result<SlotHandle> Claim(ProcessId owner, size_t payload_bytes);
  // CLAIMED → READY(group). The payload must be complete. Ring the group's doorbell afterwards.
  [[nodiscard]] bool Publish(SlotHandle slot, GroupId group, const PublishOptions& options);
  // What has become of a published job. The owner gets a notice (NoticeBoard) when that changes for good.
  SlotOutcome Look(SlotHandle slot) const;
  // RETURNED → CLAIMED: the job, still in the payload, may be published to another group.
  [[nodiscard]] bool TakeBack(SlotHandle slot);
  // Gives the slot up in whatever state it is: FREE at once, or ABANDONED while a worker runs it. A
  // stale handle is ignored.
  void Release(SlotHandle slot);

  // ---- worker (rank 0 of the group) ----
  // READY(group) → RUNNING(group). False for a stale or repeated notice.
  [[nodiscard]] bool Take(SlotHandle slot, GroupId group);
  // RUNNING → DONE | FAILED, and a notice to the owner; ABANDONED → FREE (returns false: nobody reads the answer).
  bool Complete(SlotHandle slot);
  bool Fail(SlotHandle slot, Code code);
  // True while somebody still waits for the answer of this RUNNING slot.
  bool Wanted(SlotHandle slot) const;
  // All READY slots of the group in the order of publishing: what a lost notice left behind.
  std::vector<SlotHandle> ReadySlots(GroupId group) const;

  // ---- router ----
  // The group is dead (its processes are gone; kill them first). READY, RUNNING → RETURNED, owners
  // told; ABANDONED → FREE. Call again while the group is down: an API server may publish from an
  // old snapshot. Returns the number of slots returned or freed.
  uint32_t ReturnGroup(GroupId group);
  // Nobody serves the group now: READY → RETURNED, owners told. Safe even if a worker turns up
  // meanwhile.
  uint32_t ReturnReady(GroupId group);
  // The process is dead. CLAIMED, READY, DONE, FAILED, RETURNED → FREE; RUNNING → ABANDONED.
  // Returns their number.
  uint32_t ReclaimOwner(ProcessId owner);

  // ---- everybody ----
  std::span<std::byte> payload(SlotHandle slot);  // the whole block of the slot
  SlotWord word(uint32_t index) const;
  // True, with the fields, when the slot still is this generation and published.
  bool ReadInfo(SlotHandle slot, SlotInfo* info) const;
  uint32_t slot_count() const { return slot_count_; }
  size_t largest_payload() const;
  uint32_t class_count() const { return class_count_; }
  ClassUsage Usage(uint32_t slot_class) const;
  // Slots that are not FREE, over all classes.
  uint32_t InUse() const;

  // Tests only: called at each step, on the calling thread. Not shared with other processes.
  void SetStepHook(void (*hook)(void* context, SlotStep step), void* context);

 private:
  static bool Move(SlotHeader& slot, SlotWord from, SlotWord to);
  static bool Free(SlotHeader& slot, SlotWord from);
  // FREE → CLAIMED(owner), unless it is taken.
  bool TryClaim(uint32_t index, ProcessId owner, SlotHandle& claimed);
  bool Finish(SlotHandle handle, SlotState state, Code code);
  void Tell(ProcessId owner, uint32_t slot);
  uint32_t TakeFromGroup(GroupId group, bool worker_is_dead);
  void Step(SlotStep step) const {
    if (hook_ != nullptr) [[unlikely]]
      hook_(hook_context_, step);
  }
  uint32_t ClassOf(uint32_t index) const;

  std::byte* base_;
  ArenaHeader* header_;
  SlotHeader* slots_;
  LoadBoard board_;
  NoticeBoard notices_;
  const ProcessWaker* waker_ = nullptr;
  mutable Metrics metrics_;
  uint32_t slot_count_;
  uint32_t class_count_;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  // By class: a slot that this process released and nobody may have claimed since. A hint.
  std::array<std::atomic<uint32_t>, kMaxSlotClasses> last_freed_;
  void (*hook_)(void*, SlotStep) = nullptr;
  void* hook_context_ = nullptr;
};

}  // namespace sysone
