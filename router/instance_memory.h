// What the router of an instance knows and its successor needs, in memory that outlives it: the keeper maps it before it starts
// the first router, and every router inherits it (keeper.h). It is lost only when keeper and router die together, and then the
// instance ends. Beside the arena, because nobody else has a use for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "router/child_life.h"
#include "shm_arena/process_table.h"

namespace sysone {

// One child, as its router last knew it.
struct ChildRecord {
  ProcessIdentity process;  // what was started: the child, or a group's mpirun; nobody: not running
  ProcessIdentity serving;  // who registered for it: the same, or the group's rank 0
  ChildLife life;
};

struct SupervisionRecord {
  uint32_t child_count = 0;                         // 0: no router has begun yet
  std::array<ChildRecord, kMaxProcesses> children;  // in the order of Supervisor
  int64_t start_us = 0;                             // of the first router
  bool announced = false;                           // the ready line was printed
  int exit_status = 0;  // not kExitOk: the instance was given up and is ending
};
static_assert(std::is_trivially_copyable_v<SupervisionRecord>);

// One writer of the record at a time, the router; stop requests come from keeper and router.
class InstanceMemory {
 public:
  InstanceMemory();
  ~InstanceMemory();
  InstanceMemory(const InstanceMemory&) = delete;
  InstanceMemory& operator=(const InstanceMemory&) = delete;

  // What was saved last, as a whole: a router that is killed in Save leaves what was there before.
  const SupervisionRecord& record() const;
  void Save(const SupervisionRecord& record);

  // It was asked `requests` times to stop, in all. Keeper and router each count the signals that they get themselves; a signal
  // to both (Ctrl-C, a service manager) is one request.
  void AskToStop(int requests, int64_t now_us);
  int stop_requests() const;
  int64_t first_stop_us() const;  // MonotonicUs of the first request

 private:
  struct Shared {
    std::atomic<uint32_t> current;  // which record holds
    SupervisionRecord records[2];
    std::atomic<int> stop_requests;
    std::atomic<int64_t> first_stop_us;  // 0: not asked yet
  };
  Shared* shared_;
};

}  // namespace sysone
