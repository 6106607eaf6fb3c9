// Keeps the processes of an instance running: starts them, counts who is ready, replaces who dies, takes back what they
// held in the arena, and ends them in order. One thread, one loop that waits for signals and time. It may be killed between any
// two steps: what it does is written so that its successor may do it once more, and what that one has to know is in the
// instance's memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "router/child_args.h"
#include "router/child_life.h"
#include "router/child_process.h"
#include "router/drain_plan.h"
#include "router/instance_memory.h"
#include "router/listener.h"
#include "router/signals.h"
#include "router/start_progress.h"
#include "shm_arena/arena.h"

namespace sysone {

class Supervisor {
 public:
  // All outlive this object. The arena is registered as the router's. `keeper`: the parent of this process. Goes on with the
  // children that `memory` knows, if an earlier router left some.
  Supervisor(const InstanceFacts& facts, const Listener& listener, Arena& arena,
             SignalSource& signals, InstanceMemory& memory, pid_t keeper);

  // Returns the program's exit status once every child has ended; nothing, with the children running, when the keeper is gone.
  std::optional<int> Run();

 private:
  struct Child {
    ChildStatus status;
    ChildLife life;
    pid_t pid = 0;                 // 0: not running
    ProcessIdentity process = {};  // the same, nobody should it end at once
    // Registered in the process table: pid, or a group's rank 0 below it.
    ProcessIdentity serving = {};
    bool adopted =
        false;  // started by an earlier router, so that its exit status goes to somebody else
    ProcessEnd end = {};  // of an adopted one
    int64_t last_beat_us = 0;
    bool late_reported = false;
    bool killed = false;  // SIGKILL sent, not yet reaped
  };

  void StartDue(int64_t now_us);
  void Start(Child& child, int64_t now_us);
  void Reap(int64_t now_us);
  // Nothing is known of the end of an adopted child but that it came.
  void OnDeath(Child& child, std::optional<int> wait_status, int64_t now_us);
  void ReadTable(int64_t now_us);
  // Whether `identity`, registered in the child's place, is this incarnation of it.
  static bool IsServing(Child& child, ProcessIdentity identity);
  void CheckHeartbeats(int64_t now_us);
  // Progress lines, the ready line, and the time-out of the start.
  void Report(int64_t now_us);
  void TakeBack(int64_t now_us);
  // Ends the instance with an error instead of a signal.
  void GiveUp(const std::string& reason, int exit_status, int64_t now_us);
  void ObeyDrain(DrainPlan::Order order);
  void Send(std::span<const ProcessRole> roles, int signal_number);  // none: to every child
  int Alive(std::span<const ProcessRole> roles) const;
  std::vector<ChildStatus> Statuses() const;
  // Whether somebody who is registered in the child's place still lives.
  bool PlaceTaken(const Child& child) const;
  void ObeyStopRequests(int64_t now_us);
  void Wait(int64_t now_us) const;
  int64_t WakeUpUs(int64_t now_us) const;
  // supervisor_memory.cc: leaving to a successor what it needs, and finding what a predecessor left.
  void Remember();
  void Reattach(int64_t now_us);
  void EndStrays(const std::vector<ProcessIdentity>& strays) const;

  const InstanceFacts& facts_;
  const Listener& listener_;
  Arena& arena_;
  SignalSource& signals_;
  InstanceMemory& memory_;
  const pid_t keeper_;
  std::vector<Child> children_;  // workers first: they take longest to start
  StartProgress progress_;
  DrainPlan drain_;
  HeartbeatLimits heartbeat_limits_;
  int64_t start_us_ = 0;
  int64_t next_take_back_us_ = 0;
  bool announced_ = false;  // the ready line was printed
  bool all_ready_ = false;
  int asked_to_stop_ = 0;  // by signals to this process
  int exit_status_ = 0;
};

}  // namespace sysone
