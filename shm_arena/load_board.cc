// Reading and writing the load board. All relaxed: the numbers guide placement, they order nothing.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/load_board.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sysone {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

const char* GroupStateName(GroupState state) {
  switch (state) {
    case GroupState::kAbsent:
      return "absent";
    case GroupState::kLoading:
      return "loading";
    case GroupState::kReady:
      return "ready";
    case GroupState::kDraining:
      return "draining";
    case GroupState::kDead:
      return "dead";
  }
  return "unknown";
}

void LoadBoard::Add(ProcessId process, GroupId group, int64_t tokens) {
  LoadCell& cell = region_->rows[Index(process)].cells[Index(group)];
  cell.outstanding_tokens.fetch_add(tokens, kRelaxed);
  cell.outstanding_jobs.fetch_add(1, kRelaxed);
}

void LoadBoard::Subtract(ProcessId process, GroupId group, int64_t tokens) {
  LoadCell& cell = region_->rows[Index(process)].cells[Index(group)];
  cell.outstanding_tokens.fetch_sub(tokens, kRelaxed);
  cell.outstanding_jobs.fetch_sub(1, kRelaxed);
}

void LoadBoard::ZeroRow(ProcessId process) {
  for (LoadCell& cell : region_->rows[Index(process)].cells) {
    cell.outstanding_tokens.store(0, kRelaxed);
    cell.outstanding_jobs.store(0, kRelaxed);
  }
}

void LoadBoard::StartGroup(GroupId group) {
  GroupLine& line = region_->groups[Index(group)];
  line.incarnation.fetch_add(1, kRelaxed);
  SetRate(group, {});
  line.kv_blocks_in_use.store(0, kRelaxed);
  line.kv_blocks_held.store(0, kRelaxed);
  SetGroupState(group, GroupState::kLoading);
}

void LoadBoard::GroupReady(GroupId group, ProcessId worker, uint32_t max_model_len) {
  GroupLine& line = region_->groups[Index(group)];
  line.worker_process.store(Index(worker), kRelaxed);
  line.max_model_len.store(max_model_len, kRelaxed);
  SetGroupState(group, GroupState::kReady);
}

void LoadBoard::ForgetWorker(GroupId group) {
  region_->groups[Index(group)].worker_process.store(Index(ProcessId::kNone), kRelaxed);
}

void LoadBoard::SetGroupState(GroupId group, GroupState state) {
  // Release: who sees kReady (Read, acquire) sees the worker and its limits.
  region_->groups[Index(group)].state.store(static_cast<uint32_t>(state),
                                            std::memory_order_release);
}

void LoadBoard::RecordBatch(GroupId group, uint64_t jobs, uint64_t tokens, uint64_t busy_us) {
  GroupLine& line = region_->groups[Index(group)];
  line.total_jobs.fetch_add(jobs, kRelaxed);
  if (tokens == 0) return;
  line.total_tokens.fetch_add(tokens, kRelaxed);
  line.total_batches.fetch_add(1, kRelaxed);
  line.total_busy_us.fetch_add(busy_us, kRelaxed);
}

void LoadBoard::SetRate(GroupId group, const GroupRate& rate) {
  GroupLine& line = region_->groups[Index(group)];
  line.rate_bits.store(std::bit_cast<uint32_t>(rate.tokens_per_second), kRelaxed);
  line.pass_tokens_bits.store(std::bit_cast<uint32_t>(rate.tokens_a_pass), kRelaxed);
}

void LoadBoard::RecordKv(GroupId group, const KvUsage& usage) {
  GroupLine& line = region_->groups[Index(group)];
  line.kv_blocks_in_use.store(usage.blocks_in_use, kRelaxed);
  line.kv_blocks_held.store(usage.blocks_held, kRelaxed);
  line.kv_blocks.store(usage.blocks, kRelaxed);
  line.kv_block_bytes.store(usage.block_bytes, kRelaxed);
}

void LoadBoard::Mirror(GroupId group, const MirroredLine& mirrored, int64_t now_us) {
  GroupLine& line = region_->groups[Index(group)];
  line.mirrored_us.store(now_us, kRelaxed);
  SetRate(group, mirrored.rate);
  RecordKv(group, mirrored.kv);
  line.total_tokens.fetch_add(mirrored.tokens, kRelaxed);
  line.total_batches.fetch_add(mirrored.batches, kRelaxed);
  line.total_busy_us.fetch_add(mirrored.busy_us, kRelaxed);
}

uint64_t LoadBoard::NextPublishSequence(GroupId group) {
  return region_->groups[Index(group)].publish_sequence.fetch_add(1, kRelaxed) + 1;
}

GroupState LoadBoard::State(GroupId group) const {
  return static_cast<GroupState>(
      region_->groups[Index(group)].state.load(std::memory_order_acquire));
}

GroupLoad LoadBoard::Read(GroupId group) const {
  const GroupLine& line = region_->groups[Index(group)];
  GroupLoad load;
  load.state = State(group);  // first: acquire, see SetGroupState
  load.incarnation = line.incarnation.load(kRelaxed);
  load.worker_process = static_cast<ProcessId>(line.worker_process.load(kRelaxed));
  load.max_model_len = line.max_model_len.load(kRelaxed);
  load.rate = {std::bit_cast<float>(line.rate_bits.load(kRelaxed)),
               std::bit_cast<float>(line.pass_tokens_bits.load(kRelaxed))};
  load.kv = {line.kv_blocks_in_use.load(kRelaxed), line.kv_blocks_held.load(kRelaxed),
             line.kv_blocks.load(kRelaxed), line.kv_block_bytes.load(kRelaxed)};
  load.total_jobs = line.total_jobs.load(kRelaxed);
  load.total_tokens = line.total_tokens.load(kRelaxed);
  load.total_batches = line.total_batches.load(kRelaxed);
  load.total_busy_us = line.total_busy_us.load(kRelaxed);
  load.mirrored_us = line.mirrored_us.load(kRelaxed);
  const uint32_t rows = processes_->lines_used.load(std::memory_order_acquire);
  for (uint32_t row = 0; row < rows; ++row) {
    const LoadCell& cell = region_->rows[row].cells[Index(group)];
    load.outstanding_tokens += cell.outstanding_tokens.load(kRelaxed);
    load.outstanding_jobs += cell.outstanding_jobs.load(kRelaxed);
  }
  return load;
}

BoardSnapshot LoadBoard::Snapshot() const {
  BoardSnapshot board;
  for (uint32_t g = 0; g < kMaxGroups; ++g) {
    if (State(static_cast<GroupId>(g)) == GroupState::kAbsent) continue;
    board.groups[g] = Read(static_cast<GroupId>(g));
    board.group_count = g + 1;
  }
  return board;
}

OutstandingLoad::OutstandingLoad(LoadBoard board, ProcessId process, GroupId group, int64_t tokens)
    : board_(board), process_(process), group_(group), tokens_(tokens) {
  board_.Add(process_, group_, tokens_);
}

OutstandingLoad::OutstandingLoad(OutstandingLoad&& other) noexcept
    : board_(other.board_),
      process_(other.process_),
      group_(other.group_),
      tokens_(other.tokens_),
      active_(std::exchange(other.active_, false)) {}

OutstandingLoad& OutstandingLoad::operator=(OutstandingLoad&& other) noexcept {
  if (this == &other) return *this;
  Drop();
  board_ = other.board_;
  process_ = other.process_;
  group_ = other.group_;
  tokens_ = other.tokens_;
  active_ = std::exchange(other.active_, false);
  return *this;
}

OutstandingLoad::~OutstandingLoad() { Drop(); }

void OutstandingLoad::Drop() {
  if (std::exchange(active_, false)) board_.Subtract(process_, group_, tokens_);
}

}  // namespace sysone
