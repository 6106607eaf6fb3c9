// The transitions that owners and workers make; slot_recovery.cc has the router's.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/slot_pool.h"

#include <algorithm>
#include <utility>

namespace sysone {

SlotPool::SlotPool(std::byte* base, ProcessId process)
    : base_(base),
      header_(reinterpret_cast<ArenaHeader*>(base)),
      slots_(reinterpret_cast<SlotHeader*>(base + ArenaRegions::kSlots)),
      board_(reinterpret_cast<LoadBoardRegion*>(base + ArenaRegions::kLoadBoard),
             reinterpret_cast<ProcessTableRegion*>(base + ArenaRegions::kProcesses)),
      notices_(base),
      metrics_(reinterpret_cast<MetricsRegion*>(base + ArenaRegions::kMetrics), process),
      slot_count_(0),
      class_count_(header_->class_count) {
  for (uint32_t c = 0; c < class_count_; ++c) slot_count_ += header_->classes[c].slots;
  for (auto& last : last_freed_) last.store(kNoSlot, std::memory_order_relaxed);
}

// Acquire and release: whoever moves a word next sees what the last mover wrote to header fields
// and payload before it moved the word. Every transition is both a hand-over and a take-over, so
// all use the same order.
bool SlotPool::Move(SlotHeader& slot, SlotWord from, SlotWord to) {
  uint64_t expected = from.Pack();
  return slot.word.compare_exchange_strong(expected, to.Pack(), std::memory_order_acq_rel,
                                           std::memory_order_acquire);
}

// Pairs with the Move in Claim: the next owner writes the payload only after the last one is
// through with it.
bool SlotPool::Free(SlotHeader& slot, SlotWord from) {
  return Move(slot, from, SlotWord{.generation = from.generation + 1});
}

bool SlotPool::TryClaim(uint32_t index, ProcessId owner, SlotHandle& claimed) {
  const SlotWord found = SlotWord::Unpack(slots_[index].word.load(std::memory_order_relaxed));
  if (found.state != SlotState::kFree) return false;
  const SlotWord mine = {found.generation, owner, GroupId::kNone, SlotState::kClaimed};
  if (!Move(slots_[index], found, mine)) return false;
  Step(SlotStep::kClaimed);
  metrics_.Add(Counter::kSlotsClaimed);
  claimed = {index, found.generation};
  return true;
}

SlotWord SlotPool::word(uint32_t index) const {
  return SlotWord::Unpack(slots_[index].word.load(std::memory_order_acquire));
}

uint32_t SlotPool::ClassOf(uint32_t index) const {
  uint32_t c = 0;
  while (c + 1 < class_count_ && index >= header_->classes[c + 1].first_slot) ++c;
  return c;
}

std::span<std::byte> SlotPool::payload(SlotHandle slot) {
  SYSONE_CHECK(slot.index < slot_count_, "slot %u of %u", slot.index, slot_count_);
  const SlotClass& slot_class = header_->classes[ClassOf(slot.index)];
  return {base_ + slot_class.payload_offset +
              (slot.index - slot_class.first_slot) * slot_class.block_bytes,
          static_cast<size_t>(slot_class.block_bytes)};
}

size_t SlotPool::largest_payload() const { return header_->classes[class_count_ - 1].block_bytes; }

// ---- owner ----

Result<SlotHandle> SlotPool::Claim(ProcessId owner, size_t payload_bytes) {
  if (payload_bytes > largest_payload()) {
    return Error(Code::kTooLarge, "the job needs %zu bytes of the arena; its largest block has %zu",
                 payload_bytes, largest_payload());
  }
  for (uint32_t c = 0; c < class_count_; ++c) {
    const SlotClass& slot_class = header_->classes[c];
    if (payload_bytes > slot_class.block_bytes) continue;
    SlotHandle claimed;
    // What this process has just been through with lies in its caches, and its pages are mapped.
    const uint32_t last = last_freed_[c].exchange(kNoSlot, std::memory_order_relaxed);
    if (last != kNoSlot && TryClaim(last, owner, claimed)) return claimed;
    // Every other claim starts one slot further, so that claims at the same time seldom meet.
    const uint64_t start = header_->hints[c].next.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t i = 0; i < slot_class.slots; ++i) {
      const uint32_t index =
          slot_class.first_slot + static_cast<uint32_t>((start + i) % slot_class.slots);
      if (TryClaim(index, owner, claimed)) return claimed;
    }
    header_->hints[c].high_water.store(slot_class.slots, std::memory_order_relaxed);
  }
  metrics_.Add(Counter::kSlotsRefused);
  return Error(Code::kUnavailable, "all slots for a job of %zu bytes are taken", payload_bytes);
}

bool SlotPool::Publish(SlotHandle handle, GroupId group, const PublishOptions& options) {
  SlotHeader& slot = slots_[handle.index];
  const SlotWord claimed = word(handle.index);
  if (claimed.generation != handle.generation || claimed.state != SlotState::kClaimed) return false;
  // Release on each field: a reader of the slot's last use that sees one of these also sees that
  // the word moved on (ReadInfo).
  slot.publish_sequence.store(board_.NextPublishSequence(group), std::memory_order_release);
  slot.publish_us.store(options.now_us, std::memory_order_release);
  slot.deadline_us.store(options.deadline_us, std::memory_order_release);
  slot.priority.store(options.priority, std::memory_order_release);
  slot.used_bytes.store(options.used_bytes, std::memory_order_release);
  Step(SlotStep::kPublishFilled);
  // Pairs with the Move in Take: the worker sees the payload and the fields.
  const SlotWord ready = {claimed.generation, claimed.owner, group, SlotState::kReady};
  if (!Move(slot, claimed, ready)) return false;
  Step(SlotStep::kPublished);
  return true;
}

SlotOutcome SlotPool::Look(SlotHandle handle) const {
  const SlotHeader& slot = slots_[handle.index];
  const SlotWord now = word(handle.index);  // acquire: pairs with the Move in Finish, TakeFromGroup
  if (now.generation != handle.generation) return {SlotState::kFree, Code::kOk};
  if (now.state != SlotState::kFailed) return {now.state, Code::kOk};
  return {now.state, static_cast<Code>(slot.result_code.load(std::memory_order_relaxed))};
}

bool SlotPool::TakeBack(SlotHandle handle) {
  const SlotWord now = word(handle.index);
  if (now.generation != handle.generation || now.state != SlotState::kReturned) return false;
  return Move(slots_[handle.index], now,
              {now.generation, now.owner, GroupId::kNone, SlotState::kClaimed});
}

void SlotPool::Release(SlotHandle handle) {
  SlotHeader& slot = slots_[handle.index];
  for (;;) {  // again when a worker or the router moved the word in between
    const SlotWord now = word(handle.index);
    if (now.generation != handle.generation) return;  // freed before
    switch (now.state) {
      case SlotState::kFree:
      case SlotState::kAbandoned:
        return;
      case SlotState::kRunning:  // the worker still touches the payload: it frees the slot (Finish)
        if (Move(slot, now, {now.generation, ProcessId::kNone, now.group, SlotState::kAbandoned})) {
          metrics_.Add(Counter::kSlotsAbandoned);
          return;
        }
        break;
      case SlotState::kClaimed:
      case SlotState::kReady:  // a Take at the same time either fails, or made it RUNNING first
      case SlotState::kDone:
      case SlotState::kFailed:
      case SlotState::kReturned:
        if (!Free(slot, now)) break;
        last_freed_[ClassOf(handle.index)].store(handle.index, std::memory_order_relaxed);
        return;
    }
  }
}

// ---- worker ----

bool SlotPool::Take(SlotHandle handle, GroupId group) {
  if (handle.index >= slot_count_) return false;  // a notice comes from outside
  const SlotWord now = word(handle.index);
  if (now.generation != handle.generation || now.state != SlotState::kReady || now.group != group)
    return false;
  if (!Move(slots_[handle.index], now, {now.generation, now.owner, group, SlotState::kRunning}))
    return false;
  Step(SlotStep::kTaken);
  return true;
}

bool SlotPool::Complete(SlotHandle slot) { return Finish(slot, SlotState::kDone, Code::kOk); }

bool SlotPool::Fail(SlotHandle slot, Code code) { return Finish(slot, SlotState::kFailed, code); }

bool SlotPool::Finish(SlotHandle handle, SlotState state, Code code) {
  SlotHeader& slot = slots_[handle.index];
  bool filled = false;
  for (;;) {  // again when the owner gave up in between
    const SlotWord now = word(handle.index);
    if (now.generation != handle.generation) return false;
    if (now.state == SlotState::kAbandoned) {
      if (Free(slot, now)) return false;
      continue;
    }
    if (now.state != SlotState::kRunning) return false;
    if (!std::exchange(filled, true)) {
      slot.result_code.store(static_cast<int32_t>(code), std::memory_order_relaxed);
      Step(SlotStep::kResultFilled);
    }
    // Pairs with the acquire in Look: the owner sees results and code.
    if (!Move(slot, now, {now.generation, now.owner, now.group, state})) continue;
    Step(SlotStep::kCompleted);
    Tell(now.owner, handle.index);
    return true;
  }
}

void SlotPool::Tell(ProcessId owner, uint32_t slot) {
  if (notices_.Post(NoticeReceiver::Of(owner), slot) && waker_ != nullptr) waker_->Wake(owner);
}

bool SlotPool::Wanted(SlotHandle handle) const {
  const SlotWord now = word(handle.index);
  return now.generation == handle.generation && now.state == SlotState::kRunning;
}

std::vector<SlotHandle> SlotPool::ReadySlots(GroupId group) const {
  std::vector<std::pair<uint64_t, SlotHandle>> found;
  for (uint32_t index = 0; index < slot_count_; ++index) {
    const SlotWord now = word(index);
    if (now.state != SlotState::kReady || now.group != group) continue;
    found.push_back(
        {slots_[index].publish_sequence.load(std::memory_order_relaxed), {index, now.generation}});
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SlotHandle> slots;
  slots.reserve(found.size());
  for (const auto& [sequence, slot] : found) slots.push_back(slot);
  return slots;
}

bool SlotPool::ReadInfo(SlotHandle handle, SlotInfo* info) const {
  const SlotHeader& slot = slots_[handle.index];
  const SlotWord before = word(handle.index);
  if (before.generation != handle.generation || before.state == SlotState::kFree ||
      before.state == SlotState::kClaimed) {
    return false;
  }
  info->owner = before.owner;
  // Acquire: pairs with the releases in Publish, so that a field of a later use is found out by the
  // look at the word.
  info->publish_sequence = slot.publish_sequence.load(std::memory_order_acquire);
  info->publish_us = slot.publish_us.load(std::memory_order_acquire);
  info->deadline_us = slot.deadline_us.load(std::memory_order_acquire);
  info->priority = slot.priority.load(std::memory_order_acquire);
  info->used_bytes = slot.used_bytes.load(std::memory_order_acquire);
  return word(handle.index).generation == handle.generation;
}

void SlotPool::SetStepHook(void (*hook)(void* context, SlotStep step), void* context) {
  hook_ = hook;
  hook_context_ = context;
}

}  // namespace sysone
