// Who should look at which slots: API servers tell a worker group of jobs, workers and the router tell an API server of jobs
// that ended. A notice is one bit, so it can be neither lost in a queue nor delivered twice, and the slot's own word decides
// what it means: a bit too many is harmless, a bit too few (its sender died before setting it) is found by the receiver's
// sweep over the slots.
//
//   line of a receiver: | summary: which words below hold bits | sleep: how it sleeps, if it does |
//   bits of a receiver: | slots 0 … 63 | slots 64 … 127 | …
//
// A sender wakes a receiver only when it sleeps, which costs a system call; while it is awake a notice costs two atomic
// operations. No wake-up is lost: the receiver says that it sleeps and then looks once more (R1, R2), the sender sets its bits
// and then looks whether the receiver sleeps (S1, S2), all four sequentially consistent, so all agree on one order of them.
// If R2 comes before S1, then R1 comes before S2, and the sender wakes the receiver. Else R2 finds the bit, and the
// receiver does not sleep. Between R2 and the system call that sleeps, the sender's exchange of the sleep word makes the
// futex refuse to sleep, or leaves a datagram in the socket.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm_arena/ids.h"

namespace sysone {

inline constexpr uint32_t kNoticeReceivers = kMaxGroups + kMaxProcesses;

struct alignas(128) NoticeLine {
  std::atomic<uint64_t> summary;  // bit w % 64: word w may hold bits
  std::atomic<uint32_t> sleep;    // NoticeBoard::Sleep; a futex
};
static_assert(sizeof(NoticeLine) == 128);

// Words of one receiver's bits in an arena with this many slots.
constexpr uint32_t NoticeWords(uint32_t slots) { return (slots + 63) / 64; }

// A receiver of notices: a worker group, or an API server.
struct NoticeReceiver {
  uint32_t line = 0;

  static NoticeReceiver Of(GroupId group) { return {Index(group)}; }
  static NoticeReceiver Of(ProcessId process) { return {kMaxGroups + Index(process)}; }
};

// A view; any thread of any process may Post. The other functions are the receiver's, which is one thread.
class NoticeBoard {
 public:
  enum class Sleep : uint32_t {
    kAwake = 0,
    kOnFutex = 1,   // in WaitOnFutex
    kOnSocket = 2,  // waits for a socket of its own; the sender has to know how to reach it
  };

  // `base` is the start of a formatted arena.
  explicit NoticeBoard(std::byte* base);

  // Tells `to` of a slot, and wakes it if it sleeps on the futex. True when it sleeps on a socket and this call is the one
  // that must write there.
  [[nodiscard]] bool Post(NoticeReceiver to, uint32_t slot);

  // Appends the slots of all notices since the last call.
  void Take(NoticeReceiver me, std::vector<uint32_t>& slots);
  bool Any(NoticeReceiver me) const;
  // Returns when there may be notices, or at `until_us` (MonotonicUs); may return early.
  void WaitOnFutex(NoticeReceiver me, int64_t until_us);
  // Before sleeping on a socket. False: there are notices already, do not sleep. Call WakeUp afterwards in any case.
  [[nodiscard]] bool FallAsleepOnSocket(NoticeReceiver me);
  void WakeUp(NoticeReceiver me);

 private:
  bool FallAsleep(NoticeReceiver me, Sleep how);
  std::atomic<uint64_t>* Words(NoticeReceiver receiver) const {
    return bits_ + size_t{receiver.line} * words_;
  }

  NoticeLine* lines_;
  std::atomic<uint64_t>* bits_;
  uint32_t words_;  // a receiver
};

}  // namespace sysone
