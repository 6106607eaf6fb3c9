// Identities from /proc, and the life of a line of the process table.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/process_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sysone {

const char* ProcessRoleName(ProcessRole role) {
  switch (role) {
    case ProcessRole::kNone:
      return "none";
    case ProcessRole::kRouter:
      return "router";
    case ProcessRole::kApiServer:
      return "api_server";
    case ProcessRole::kWorker:
      return "worker";
    case ProcessRole::kStandIn:
      return "stand_in";
    case ProcessRole::kIntake:
      return "intake";
  }
  return "unknown";
}

const char* ProcessPhaseName(ProcessPhase phase) {
  switch (phase) {
    case ProcessPhase::kAbsent:
      return "absent";
    case ProcessPhase::kStarting:
      return "starting";
    case ProcessPhase::kLoading:
      return "loading";
    case ProcessPhase::kReady:
      return "ready";
    case ProcessPhase::kDraining:
      return "draining";
    case ProcessPhase::kExiting:
      return "exiting";
    case ProcessPhase::kExited:
      return "exited";
  }
  return "unknown";
}

ProcessIdentity IdentityOfPid(int32_t pid) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[1024];
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return {};
  text[length] = '\0';
  // Field 2 is the program's name in parentheses and may itself hold spaces and parentheses: count
  // from the last ')'.
  const char* cursor = std::strrchr(text, ')');
  if (cursor == nullptr || cursor[1] != ' ') return {};
  cursor += 2;
  const char state = *cursor;  // field 3
  if (state == 'Z' || state == 'X' || state == 'x') return {};
  for (int field = 3; field < 22; ++field) {
    cursor = std::strchr(cursor, ' ');
    if (cursor == nullptr) return {};
    ++cursor;
  }
  const uint64_t start_ticks = std::strtoull(cursor, nullptr, 10);  // field 22
  // Pids stay below 2^22; 40 bits of clock ticks are centuries.
  return {static_cast<uint64_t>(pid) << 40 | (start_ticks & ((uint64_t{1} << 40) - 1))};
}

ProcessIdentity CurrentProcessIdentity() {
  const ProcessIdentity identity = IdentityOfPid(getpid());
  SYSONE_CHECK(identity, "/proc/%d/stat cannot be read: sysone needs /proc", getpid());
  return identity;
}

bool IdentityAlive(ProcessIdentity identity) {
  return identity && IdentityOfPid(identity.pid()) == identity;
}

Result<ProcessId> ProcessTable::Register(ProcessIdentity identity, ProcessRole role,
                                         uint32_t role_index, int64_t now_us) {
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    ProcessEntry& line = region_->entries[i];
    if (line.identity.load(std::memory_order_relaxed) != 0) continue;
    // Before the claim: if we die right after it, the router's scan still covers the line.
    uint32_t used = region_->lines_used.load(std::memory_order_relaxed);
    while (used < i + 1 &&
           !region_->lines_used.compare_exchange_weak(used, i + 1, std::memory_order_acq_rel)) {
    }
    uint64_t nobody = 0;
    // Acquire: pairs with the release in Free, so that its zeroes stand before our values.
    if (!line.identity.compare_exchange_strong(nobody, identity.word, std::memory_order_acq_rel))
      continue;
    line.role_index.store(role_index, std::memory_order_relaxed);
    line.role.store(static_cast<uint32_t>(role), std::memory_order_relaxed);
    line.heartbeat_us.store(now_us, std::memory_order_relaxed);
    // Release: who reads a phase other than kAbsent sees the fields above (Read).
    line.phase.store(static_cast<uint32_t>(ProcessPhase::kStarting), std::memory_order_release);
    return static_cast<ProcessId>(i);
  }
  return Error(Code::kUnavailable, "all %u lines of the process table are taken", kMaxProcesses);
}

void ProcessTable::Free(ProcessId id) {
  ProcessEntry& line = entry(id);
  line.phase.store(static_cast<uint32_t>(ProcessPhase::kAbsent), std::memory_order_relaxed);
  line.role.store(static_cast<uint32_t>(ProcessRole::kNone), std::memory_order_relaxed);
  line.role_index.store(0, std::memory_order_relaxed);
  line.progress.store(0, std::memory_order_relaxed);
  line.heartbeat_us.store(0, std::memory_order_relaxed);
  line.open_connections.store(0, std::memory_order_relaxed);
  line.in_flight.store(0, std::memory_order_relaxed);
  line.identity.store(
      0, std::memory_order_release);  // pairs with the acquire of the claim in Register
}

std::optional<ProcessInfo> ProcessTable::Read(ProcessId id) const {
  const ProcessEntry& line = region_->entries[Index(id)];
  ProcessInfo info;
  info.id = id;
  info.identity = {line.identity.load(std::memory_order_acquire)};
  if (!info.identity) return std::nullopt;
  // Acquire: pairs with the release at the end of Register.
  info.phase = static_cast<ProcessPhase>(line.phase.load(std::memory_order_acquire));
  info.role = static_cast<ProcessRole>(line.role.load(std::memory_order_relaxed));
  info.role_index = line.role_index.load(std::memory_order_relaxed);
  info.progress = line.progress.load(std::memory_order_relaxed);
  info.heartbeat_us = line.heartbeat_us.load(std::memory_order_relaxed);
  info.open_connections = line.open_connections.load(std::memory_order_relaxed);
  info.in_flight = line.in_flight.load(std::memory_order_relaxed);
  return info;
}

bool ProcessTable::Alive(ProcessId id) const {
  const std::optional<ProcessInfo> info = Read(id);
  return info && info->phase != ProcessPhase::kExited && IdentityAlive(info->identity);
}

Result<ProcessLease> ProcessLease::Take(ProcessTable table, ProcessRole role, uint32_t role_index,
                                        int64_t now_us) {
  SYSONE_ASSIGN_OR_RETURN(const ProcessId id,
                          table.Register(CurrentProcessIdentity(), role, role_index, now_us));
  return ProcessLease(table, id);
}

ProcessLease::ProcessLease(ProcessLease&& other) noexcept
    : table_(other.table_), id_(std::exchange(other.id_, ProcessId::kNone)) {}

ProcessLease::~ProcessLease() {
  if (id_ != ProcessId::kNone) SetPhase(ProcessPhase::kExited);
}

void ProcessLease::Beat(int64_t now_us) {
  table_.entry(id_).heartbeat_us.store(now_us, std::memory_order_relaxed);
}

void ProcessLease::SetPhase(ProcessPhase phase) {
  table_.entry(id_).phase.store(static_cast<uint32_t>(phase), std::memory_order_release);
}

void ProcessLease::SetProgress(uint32_t per_mille) {
  table_.entry(id_).progress.store(per_mille, std::memory_order_relaxed);
}

void ProcessLease::AddConnections(int32_t change) {
  table_.entry(id_).open_connections.fetch_add(static_cast<uint32_t>(change),
                                               std::memory_order_relaxed);
}

void ProcessLease::AddInFlight(int32_t change) {
  table_.entry(id_).in_flight.fetch_add(static_cast<uint32_t>(change), std::memory_order_relaxed);
}

}  // namespace sysone
