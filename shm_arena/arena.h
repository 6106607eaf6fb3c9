// The arena of one instance, as one process sees it: its memory and the views of its parts.
//
// Router:      its keeper made the arena (Create) before it was forked; TakeOver, Register, then start children.
// API server:  Arena::Attach, Register(kApiServer, n); slots().Claim … Release; board(); accept turns.
// Worker:      Arena::Attach, Register(kWorker, group); slots().Take … Complete; board().GroupReady.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "shm_arena/counters.h"
#include "shm_arena/layout.h"
#include "shm_arena/load_board.h"
#include "shm_arena/prefix_board.h"
#include "shm_arena/process_table.h"
#include "shm_arena/segment.h"
#include "shm_arena/slot_pool.h"

namespace sysone {

// What a process brings when it joins an instance.
struct InstanceIdentity {
  std::string program_version;
  std::string model_fingerprint;
};

class Arena {
 public:
  // Errors as in Segment; the message of kOutOfMemory names the bytes needed and free, and
  // --shm-arena-mb.
  static Result<Arena> Create(const std::string& instance, const ArenaConfig& config);
  static Result<Arena> Adopt(const std::string& instance);
  static Result<Arena> Attach(const std::string& instance, int64_t wait_us);
  // Plain memory, shared with children forked later (tests).
  static Arena InMemory(const ArenaConfig& config);

  // Whoever creates the arena says what is served here before it starts others; they compare it with what they brought. The
  // message of kUnavailable says what differs: a program or a model was replaced under a running instance.
  void SetIdentity(const InstanceIdentity& identity);
  Status CheckIdentity(const InstanceIdentity& own) const;

  // Takes a line of the process table for this process; once. Afterwards slots() and metrics()
  // count as this process.
  Status Register(ProcessRole role, uint32_t role_index);
  // Gives the line back, for a router that becomes the keeper of another: it may not be seen as a router any more.
  void Unregister();
  // Router: from now on it is this process whose life the children watch (router_watch.h). What it holds of the arena is its
  // keeper's, who outlives it.
  void TakeOver();
  // From now on slots() wakes owners that sleep on their sockets, which are in `run_dir` (wake_socket.h). Worker and router,
  // after Register; without it an owner's sweep has to find what ended.
  void WakeThrough(const std::string& run_dir);

  // A further line for this process, which stands in for a worker of that group.
  Result<ProcessLease> RegisterStandIn(GroupId group);

  ProcessLease& lease();  // after Register
  ProcessId self() const { return self_; }
  ProcessTable processes() const;
  LoadBoard board() const;
  Metrics metrics() const;
  SlotPool& slots() { return *slots_; }
  NoticeBoard notices() const;
  AcceptRegion* accept_region() const;
  PrefixBoard prefixes() const;
  ArenaHeader* header() const;
  uint64_t bytes() const { return segment_->bytes(); }

  // Router: everything that dead or exited processes held is taken back, and their lines are freed.
  // Workers' groups are returned (SlotPool::ReturnGroup) and marked kDead. Reads /proc once a
  // process: call it when a child ends and about once a second. Returns what was found.
  struct Recovered {
    ProcessInfo process;
    uint32_t slots = 0;
  };
  std::vector<Recovered> RecoverDead();

  // Appends counters, histograms and gauges (slots in use, groups, processes) in the Prometheus
  // text format.
  void AppendMetricsText(std::string& out);

 private:
  explicit Arena(std::unique_ptr<Segment> segment);
  Result<ProcessLease> TakeLine(ProcessRole role, uint32_t role_index);
  std::unique_ptr<Segment> segment_;
  ProcessId self_ = ProcessId::kNone;
  std::unique_ptr<ProcessWaker> waker_;
  std::unique_ptr<SlotPool> slots_;
  std::optional<ProcessLease> lease_;
};

}  // namespace sysone
