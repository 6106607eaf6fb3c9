// What the router does with the slots of dead groups and dead owners, and the count of slots in
// use.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/slot_pool.h"

namespace sysone {

uint32_t SlotPool::ReturnGroup(GroupId group) { return TakeFromGroup(group, true); }

uint32_t SlotPool::ReturnReady(GroupId group) { return TakeFromGroup(group, false); }

// Loops on a slot while its owner (alive) moves it; the worker cannot, unless it is alive and
// `worker_is_dead` false.
uint32_t SlotPool::TakeFromGroup(GroupId group, bool worker_is_dead) {
  uint32_t count = 0;
  for (uint32_t index = 0; index < slot_count_; ++index) {
    SlotHeader& slot = slots_[index];
    for (;;) {
      const SlotWord now = word(index);
      if (now.group != group) break;
      const bool returns =
          now.state == SlotState::kReady || (worker_is_dead && now.state == SlotState::kRunning);
      if (returns) {
        // Case 1: the owner waits. It places the job again; it alone may touch the payload.
        if (!Move(slot, now, {now.generation, now.owner, GroupId::kNone, SlotState::kReturned}))
          continue;
        Step(SlotStep::kReturnedUntold);
        metrics_.Add(Counter::kSlotsReturned);
        ++count;
        Tell(now.owner, index);
      } else if (worker_is_dead && now.state == SlotState::kAbandoned) {
        // Case 2: nobody waits, and the worker that was to free it is gone.
        if (!Free(slot, now)) continue;
        metrics_.Add(Counter::kSlotsReclaimed);
        ++count;
      } else if (worker_is_dead) {
        // Case 3: answered, but the worker may have died before it told the owner.
        Tell(now.owner, index);
      }
      break;
    }
  }
  return count;
}

// Loops on a slot while a worker (alive) moves it: READY → RUNNING → DONE | FAILED. The owner
// itself is dead.
uint32_t SlotPool::ReclaimOwner(ProcessId owner) {
  uint32_t count = 0;
  for (uint32_t index = 0; index < slot_count_; ++index) {
    SlotHeader& slot = slots_[index];
    for (;;) {
      const SlotWord now = word(index);
      if (now.owner != owner || now.state == SlotState::kFree) break;
      const bool runs = now.state == SlotState::kRunning;
      const bool moved =
          runs ? Move(slot, now,
                      {now.generation, ProcessId::kNone, now.group, SlotState::kAbandoned})
               : Free(slot, now);
      if (!moved) continue;
      metrics_.Add(runs ? Counter::kSlotsAbandoned : Counter::kSlotsReclaimed);
      ++count;
      break;
    }
  }
  return count;
}

ClassUsage SlotPool::Usage(uint32_t slot_class) const {
  const SlotClass& sizes = header_->classes[slot_class];
  ClassUsage usage = {.block_bytes = sizes.block_bytes, .slots = sizes.slots};
  for (uint32_t i = 0; i < sizes.slots; ++i) {
    if (word(sizes.first_slot + i).state != SlotState::kFree) ++usage.in_use;
  }
  std::atomic<uint32_t>& high_water = header_->hints[slot_class].high_water;
  usage.high_water = high_water.load(std::memory_order_relaxed);
  while (usage.high_water < usage.in_use &&
         !high_water.compare_exchange_weak(usage.high_water, usage.in_use,
                                           std::memory_order_relaxed)) {
  }
  if (usage.high_water < usage.in_use) usage.high_water = usage.in_use;
  return usage;
}

uint32_t SlotPool::InUse() const {
  uint32_t in_use = 0;
  for (uint32_t c = 0; c < class_count_; ++c) in_use += Usage(c).in_use;
  return in_use;
}

}  // namespace sysone
