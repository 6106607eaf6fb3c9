// Whose turn it is to accept.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/accept_turn.h"

#include <array>
#include <optional>
#include <tuple>

#include "shm_arena/futex.h"

namespace sysone {

ProcessId LeastLoaded(std::span<const AcceptCandidate> candidates) {
  const AcceptCandidate* best = nullptr;
  const auto key = [](const AcceptCandidate& c) {
    return std::tuple(c.open_connections, c.in_flight, Index(c.id));
  };
  for (const AcceptCandidate& candidate : candidates) {
    if (best == nullptr || key(candidate) < key(*best)) best = &candidate;
  }
  return best == nullptr ? ProcessId::kNone : best->id;
}

bool MayAccept(std::span<const AcceptCandidate> candidates, ProcessId me, int64_t pending_us) {
  return pending_us >= kAcceptPatienceUs || LeastLoaded(candidates) == me;
}

bool AcceptTurn::MayAccept(int64_t pending_us) {
  std::array<AcceptCandidate, kMaxProcesses> candidates;
  size_t count = 0;
  for (uint32_t i = 0; i < processes_.lines_used(); ++i) {
    const std::optional<ProcessInfo> info = processes_.Read(static_cast<ProcessId>(i));
    if (!info || info->role != ProcessRole::kApiServer || info->phase != ProcessPhase::kReady)
      continue;
    candidates[count++] = {info->id, info->open_connections, info->in_flight};
  }
  return sysone::MayAccept({candidates.data(), count}, me_, pending_us);
}

uint32_t AcceptTurn::sequence() const { return region_->sequence.load(std::memory_order_acquire); }

void AcceptTurn::WaitForChange(uint32_t seen_sequence, int64_t until_us) {
  FutexWait(&region_->sequence, seen_sequence, until_us);
}

void AcceptTurn::Opened() {
  processes_.entry(me_).open_connections.fetch_add(1, std::memory_order_relaxed);
  Changed();
}

void AcceptTurn::Closed() {
  processes_.entry(me_).open_connections.fetch_sub(1, std::memory_order_relaxed);
  Changed();
}

void AcceptTurn::Changed() {
  // Release: who sees the new sequence sees the count (sequence(), acquire).
  region_->sequence.fetch_add(1, std::memory_order_release);
  FutexWakeAll(&region_->sequence);
}

}  // namespace sysone
