// Who takes part in an instance: one line a process, claimed by compare-and-swap of its identity.
// Only the router frees a line, after it took back what the process held; so an id is never reused
// while anything still names it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm_arena/ids.h"

namespace sysone {

// What a line stands for. A stand-in has a line of its own and, for each group of another host, one as that group's worker; an
// intake places jobs like an API server (link/link_message.h).
enum class ProcessRole : uint32_t {
  kNone = 0,
  kRouter = 1,
  kApiServer = 2,
  kWorker = 3,
  kStandIn = 4,
  kIntake = 5,
};

// kAbsent: the line is free or being filled in. kExited: the process unregistered; the router frees
// the line.
enum class ProcessPhase : uint32_t {
  kAbsent = 0,
  kStarting = 1,
  kLoading = 2,
  kReady = 3,
  kDraining = 4,
  kExiting = 5,
  kExited = 6,
};

// For logs and metrics: "worker", "ready".
const char* ProcessRoleName(ProcessRole role);
const char* ProcessPhaseName(ProcessPhase phase);

// Process id and start time in one word, so that a reused pid is not mistaken for the process that
// died. 0 is nobody. | pid:24 | start in clock ticks since boot:40 |
struct ProcessIdentity {
  uint64_t word = 0;

  int32_t pid() const { return static_cast<int32_t>(word >> 40); }
  explicit operator bool() const { return word != 0; }
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// The calling process's own.
ProcessIdentity CurrentProcessIdentity();
// The identity of the process that has `pid` now; nobody when there is none (a zombie counts as
// none).
ProcessIdentity IdentityOfPid(int32_t pid);
// Reads /proc: some microseconds, not for a hot path.
bool IdentityAlive(ProcessIdentity identity);

struct alignas(128) ProcessEntry {
  std::atomic<uint64_t> identity;          // 0 = free
  std::atomic<uint32_t> role;              // ProcessRole
  std::atomic<uint32_t> role_index;        // n-th API server, or the group of a worker
  std::atomic<uint32_t> phase;             // ProcessPhase; written last at registration
  std::atomic<uint32_t> progress;          // 0 … 1000 of loading
  std::atomic<int64_t> heartbeat_us;       // MonotonicUs of the last Beat
  std::atomic<uint32_t> open_connections;  // API servers
  std::atomic<uint32_t> in_flight;         // API servers: requests being answered
};
static_assert(sizeof(ProcessEntry) == 128);

struct alignas(128) ProcessTableRegion {
  std::atomic<uint32_t> lines_used;  // highest line ever claimed + 1; scans stop there
  ProcessEntry entries[kMaxProcesses];
};

// A copy of one line.
struct ProcessInfo {
  ProcessId id = ProcessId::kNone;
  ProcessIdentity identity;
  ProcessRole role = ProcessRole::kNone;
  uint32_t role_index = 0;
  ProcessPhase phase = ProcessPhase::kAbsent;
  uint32_t progress = 0;
  int64_t heartbeat_us = 0;
  uint32_t open_connections = 0;
  uint32_t in_flight = 0;
};

// A view; any thread of any process.
class ProcessTable {
 public:
  explicit ProcessTable(ProcessTableRegion* region) : region_(region) {}

  // Claims a line for `identity`; kUnavailable when all are taken.
  Result<ProcessId> Register(ProcessIdentity identity, ProcessRole role, uint32_t role_index,
                             int64_t now_us);
  // Router only, after reclaiming: makes the line free for another process.
  void Free(ProcessId id);

  ProcessEntry& entry(ProcessId id) { return region_->entries[Index(id)]; }
  uint32_t lines_used() const { return region_->lines_used.load(std::memory_order_acquire); }
  // nullopt for a free line.
  std::optional<ProcessInfo> Read(ProcessId id) const;
  // Registered, not exited, and its pid still belongs to the same process. Reads /proc.
  bool Alive(ProcessId id) const;

 private:
  ProcessTableRegion* region_;
};

// A process's own line for as long as it lives. On destruction the phase becomes kExited and the
// router frees the line. Beat and the setters: any thread.
class ProcessLease {
 public:
  static Result<ProcessLease> Take(ProcessTable table, ProcessRole role, uint32_t role_index,
                                   int64_t now_us);
  ProcessLease(ProcessLease&& other) noexcept;
  ProcessLease& operator=(ProcessLease&&) = delete;
  ~ProcessLease();

  ProcessId id() const { return id_; }
  void Beat(int64_t now_us);
  void SetPhase(ProcessPhase phase);
  void SetProgress(uint32_t per_mille);
  void AddConnections(int32_t change);
  void AddInFlight(int32_t change);

 private:
  ProcessLease(ProcessTable table, ProcessId id) : table_(table), id_(id) {}
  ProcessTable table_;
  ProcessId id_;
};

}  // namespace sysone
