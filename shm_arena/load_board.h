// What every group has to do, exactly and now: each API server keeps its own row of outstanding
// work per group, adds before it publishes and subtracts when its wait ends; a reader sums the
// rows. The row of a dead process is zeroed by the router, so the sums never drift.
//
//   rows: process 0 | g0 {tokens, jobs} | g1 | … | g63 |     written by that process alone (all its
//   threads)
//         process 1 | …
//   groups: g0 | worker line | publish line |                 state, rate, totals: worker and
//   router
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "shm_arena/ids.h"
#include "shm_arena/process_table.h"

namespace sysone {

// Life of a worker group, as its line of the board tells it.
enum class GroupState : uint32_t {
  kAbsent = 0,
  kLoading = 1,
  kReady = 2,
  kDraining = 3,
  kDead = 4
};

// For logs and metrics: "ready".
const char* GroupStateName(GroupState state);

// What one process has placed on one group and is not answered yet.
struct LoadCell {
  std::atomic<int64_t> outstanding_tokens;
  std::atomic<int64_t> outstanding_jobs;
};

// The cells of one process: it alone adds to them, so a dead process's share can be taken off.
struct alignas(128) LoadRow {
  LoadCell cells[kMaxGroups];
};

struct alignas(128) GroupLine {
  // Worker and router write this line.
  std::atomic<uint32_t> state;           // GroupState
  std::atomic<uint32_t> incarnation;     // 1 = first start; incremented by the router at each start
  std::atomic<uint32_t> worker_process;  // ProcessId of rank 0
  std::atomic<uint32_t> max_model_len;   // tokens of one sequence
  std::atomic<uint32_t> rate_bits;       // float: GroupRate::tokens_per_second
  std::atomic<uint32_t> pass_tokens_bits;  // float: GroupRate::tokens_a_pass
  std::atomic<uint32_t> kv_blocks_in_use;
  std::atomic<uint32_t> kv_blocks_held;
  std::atomic<uint32_t> kv_blocks;
  std::atomic<uint64_t> total_jobs;
  std::atomic<uint64_t> total_tokens;
  std::atomic<uint64_t> total_batches;
  std::atomic<uint64_t> total_busy_us;
  std::atomic<uint64_t> kv_block_bytes;
  // MonotonicUs: a group of another host, whose line is a copy, was last heard of then. 0: the line is its own.
  std::atomic<int64_t> mirrored_us;
  // API servers write this one.
  alignas(128) std::atomic<uint64_t> publish_sequence;
};
static_assert(sizeof(GroupLine) == 256);

// The board as it lies in the arena: a line a group, a row a process.
struct LoadBoardRegion {
  GroupLine groups[kMaxGroups];
  LoadRow rows[kMaxProcesses];
};

// A group's blocks of keys and values.
struct KvUsage {
  uint32_t blocks_in_use = 0;  // of unfinished jobs
  uint32_t blocks_held = 0;    // these, and what is kept for requests to come
  uint32_t blocks = 0;
  uint64_t block_bytes = 0;
};

// How fast a group computes, see RateMeter.
struct GroupRate {
  float tokens_per_second = 0;  // computed tokens by time in passes; 0 = not known
  float tokens_a_pass = 0;      // on average, meanwhile
};

// What another host's board says of its group, to be copied to this one's.
struct MirroredLine {
  GroupRate rate;
  KvUsage kv;
  // Since the last copy.
  uint64_t tokens = 0;
  uint64_t batches = 0;
  uint64_t busy_us = 0;
};

// What placement needs to know of one group.
struct GroupLoad {
  GroupState state = GroupState::kAbsent;
  uint32_t incarnation = 0;
  ProcessId worker_process = ProcessId::kNone;
  uint32_t max_model_len = 0;
  GroupRate rate;
  int64_t outstanding_tokens = 0;
  int64_t outstanding_jobs = 0;
  KvUsage kv;
  uint64_t total_jobs = 0;
  uint64_t total_tokens = 0;
  uint64_t total_batches = 0;
  uint64_t total_busy_us = 0;
  int64_t mirrored_us = 0;  // 0: not a copy
};

struct BoardSnapshot {
  uint32_t group_count = 0;  // highest group that is not absent, + 1
  std::array<GroupLoad, kMaxGroups> groups{};
};

// A view; any thread of any process, except where a writer is named.
class LoadBoard {
 public:
  LoadBoard(LoadBoardRegion* region, ProcessTableRegion* processes)
      : region_(region), processes_(processes) {}

  // API server `process` only. Add before publishing; Subtract the same once the wait ended,
  // however it ended.
  void Add(ProcessId process, GroupId group, int64_t tokens);
  void Subtract(ProcessId process, GroupId group, int64_t tokens);
  // Router only, for a process that is dead.
  void ZeroRow(ProcessId process);

  // Router: a start of the group, after Arena::RecoverDead cleared its last worker away. State becomes kLoading, totals
  // stay, the rate is forgotten.
  void StartGroup(GroupId group);
  // Worker (rank 0): ready to take jobs of up to `max_model_len` tokens a sequence.
  void GroupReady(GroupId group, ProcessId worker, uint32_t max_model_len);
  // Router, after the slots of the group's dead worker were returned.
  void ForgetWorker(GroupId group);
  void SetGroupState(GroupId group, GroupState state);
  // Worker (rank 0), the one writer of all these. After each pass; tokens: computed ones; 0: the jobs took no pass.
  void RecordBatch(GroupId group, uint64_t jobs, uint64_t tokens, uint64_t busy_us);
  // After each pass, and from time to time without one, because a rate gets old.
  void SetRate(GroupId group, const GroupRate& rate);
  void RecordKv(GroupId group, const KvUsage& usage);
  // Stand-in (the worker of a group of another host): the same from there, at `now_us` (MonotonicUs). RecordBatch then counts
  // jobs alone.
  void Mirror(GroupId group, const MirroredLine& line, int64_t now_us);

  // A number that grows with every publish to the group: the order in which the worker's sweep
  // takes jobs.
  uint64_t NextPublishSequence(GroupId group);

  GroupLoad Read(GroupId group) const;
  BoardSnapshot Snapshot() const;
  GroupState State(GroupId group) const;

 private:
  LoadBoardRegion* region_;
  ProcessTableRegion* processes_;
};

// Keeps one job on the board from before its publish until its wait ended. Movable; one thread at a
// time.
class OutstandingLoad {
 public:
  OutstandingLoad(LoadBoard board, ProcessId process, GroupId group, int64_t tokens);
  OutstandingLoad(OutstandingLoad&& other) noexcept;
  OutstandingLoad& operator=(OutstandingLoad&& other) noexcept;
  ~OutstandingLoad();

 private:
  void Drop();
  LoadBoard board_;
  ProcessId process_;
  GroupId group_;
  int64_t tokens_;
  bool active_ = true;
};

}  // namespace sysone
