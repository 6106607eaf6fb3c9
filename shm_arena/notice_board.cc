// See notice_board.h for the argument about lost wake-ups; the labels R1, R2, S1, S2 are used here.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/notice_board.h"

#include <bit>

#include "shm_arena/futex.h"
#include "shm_arena/layout.h"

namespace sysone {

NoticeBoard::NoticeBoard(std::byte* base)
    : lines_(reinterpret_cast<NoticeLine*>(base + ArenaRegions::kNotices)) {
  const auto* header = reinterpret_cast<const ArenaHeader*>(base);
  uint32_t slots = 0;
  for (uint32_t c = 0; c < header->class_count; ++c) slots += header->classes[c].slots;
  words_ = NoticeWords(slots);
  bits_ = reinterpret_cast<std::atomic<uint64_t>*>(base + ArenaRegions::NoticeBitsOffset(slots));
}

bool NoticeBoard::Post(NoticeReceiver to, uint32_t slot) {
  NoticeLine& line = lines_[to.line];
  const uint32_t word = slot / 64;
  // Release: pairs with the exchange in Take, so that the receiver sees the slot as it is now.
  Words(to)[word].fetch_or(uint64_t{1} << (slot % 64), std::memory_order_acq_rel);
  line.summary.fetch_or(uint64_t{1} << (word % 64), std::memory_order_seq_cst);  // S1
  if (line.sleep.load(std::memory_order_seq_cst) ==                              // S2
      static_cast<uint32_t>(Sleep::kAwake))
    return false;
  // Of several senders one wakes.
  const auto slept = static_cast<Sleep>(
      line.sleep.exchange(static_cast<uint32_t>(Sleep::kAwake), std::memory_order_seq_cst));
  if (slept == Sleep::kOnFutex) FutexWakeAll(&line.sleep);
  return slept == Sleep::kOnSocket;
}

void NoticeBoard::Take(NoticeReceiver me, std::vector<uint32_t>& slots) {
  uint64_t summary = lines_[me.line].summary.exchange(0, std::memory_order_acq_rel);
  for (; summary != 0; summary &= summary - 1) {
    for (auto word = static_cast<uint32_t>(std::countr_zero(summary)); word < words_; word += 64) {
      // Acquire: pairs with the fetch_or in Post.
      uint64_t bits = Words(me)[word].exchange(0, std::memory_order_acq_rel);
      for (; bits != 0; bits &= bits - 1)
        slots.push_back(word * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
}

bool NoticeBoard::Any(NoticeReceiver me) const {
  return lines_[me.line].summary.load(std::memory_order_seq_cst) != 0;  // R2
}

bool NoticeBoard::FallAsleep(NoticeReceiver me, Sleep how) {
  lines_[me.line].sleep.store(static_cast<uint32_t>(how), std::memory_order_seq_cst);  // R1
  return !Any(me);
}

void NoticeBoard::WaitOnFutex(NoticeReceiver me, int64_t until_us) {
  if (FallAsleep(me, Sleep::kOnFutex))
    FutexWait(&lines_[me.line].sleep, static_cast<uint32_t>(Sleep::kOnFutex), until_us);
  WakeUp(me);
}

bool NoticeBoard::FallAsleepOnSocket(NoticeReceiver me) { return FallAsleep(me, Sleep::kOnSocket); }

void NoticeBoard::WakeUp(NoticeReceiver me) {
  // Relaxed: a sender that still sees the receiver asleep wakes it once more, which does no harm.
  lines_[me.line].sleep.store(static_cast<uint32_t>(Sleep::kAwake), std::memory_order_relaxed);
}

}  // namespace sysone
