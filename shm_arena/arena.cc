// Building the views, registration, and what the router does about the dead.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/arena.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"

namespace sysone {
namespace {

void WriteText(const std::string& text, std::span<char> out) {
  SYSONE_CHECK(text.size() < out.size(), "'%s' has more than %zu characters", text.c_str(),
               out.size() - 1);
  std::fill(std::copy(text.begin(), text.end(), out.begin()), out.end(), '\0');
}

Status Compare(const char* what, const std::string& own, const char* of_instance) {
  if (own == of_instance) return {};
  return Error(
      Code::kUnavailable,
      "this process may not join: %s is %s, that of the running instance is %s; it was replaced "
      "since `sysone serve` was started, which has to be started again",
      what, own.c_str(), of_instance);
}

template <class Region>
Region* At(const Segment& segment, uint64_t offset) {
  return reinterpret_cast<Region*>(segment.base() + offset);
}

}  // namespace

Arena::Arena(std::unique_ptr<Segment> segment)
    : segment_(std::move(segment)), slots_(std::make_unique<SlotPool>(segment_->base(), self_)) {}

Result<Arena> Arena::Create(const std::string& instance, const ArenaConfig& config) {
  SYSONE_RETURN_IF_ERROR(config.Validate());
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                          Segment::Create(instance, ArenaRegions::Of(config).total_bytes));
  FormatArena(segment->base(), config, CurrentProcessIdentity().word);
  return Arena(std::move(segment));
}

Result<Arena> Arena::Adopt(const std::string& instance) {
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Segment::Adopt(instance));
  return Arena(std::move(segment));
}

Result<Arena> Arena::Attach(const std::string& instance, int64_t wait_us) {
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Segment::Attach(instance, wait_us));
  return Arena(std::move(segment));
}

Arena Arena::InMemory(const ArenaConfig& config) {
  std::unique_ptr<Segment> segment = Segment::Plain(ArenaRegions::Of(config).total_bytes);
  FormatArena(segment->base(), config, CurrentProcessIdentity().word);
  return Arena(std::move(segment));
}

ArenaHeader* Arena::header() const { return At<ArenaHeader>(*segment_, 0); }
ProcessTable Arena::processes() const {
  return ProcessTable(At<ProcessTableRegion>(*segment_, ArenaRegions::kProcesses));
}
LoadBoard Arena::board() const {
  return {At<LoadBoardRegion>(*segment_, ArenaRegions::kLoadBoard),
          At<ProcessTableRegion>(*segment_, ArenaRegions::kProcesses)};
}
Metrics Arena::metrics() const {
  return {At<MetricsRegion>(*segment_, ArenaRegions::kMetrics), self_};
}
NoticeBoard Arena::notices() const { return NoticeBoard(segment_->base()); }
AcceptRegion* Arena::accept_region() const {
  return At<AcceptRegion>(*segment_, ArenaRegions::kAccept);
}

PrefixBoard Arena::prefixes() const {
  return PrefixBoard(At<PrefixRegion>(*segment_, ArenaRegions::kPrefixes));
}

void Arena::SetIdentity(const InstanceIdentity& identity) {
  WriteText(identity.program_version, header()->program_version);
  WriteText(identity.model_fingerprint, header()->model_fingerprint);
}

Status Arena::CheckIdentity(const InstanceIdentity& own) const {
  SYSONE_RETURN_IF_ERROR(
      Compare("the program's version", own.program_version, header()->program_version));
  return Compare("the model's fingerprint", own.model_fingerprint, header()->model_fingerprint);
}

Result<ProcessLease> Arena::TakeLine(ProcessRole role, uint32_t role_index) {
  SYSONE_CHECK(role != ProcessRole::kWorker || role_index < kMaxGroups, "group %u of %u",
               role_index, kMaxGroups);
  SYSONE_ASSIGN_OR_RETURN(ProcessLease lease,
                          ProcessLease::Take(processes(), role, role_index, MonotonicUs()));
  if (role == ProcessRole::kWorker) {
    // One worker a group, and none before the last one's slots are returned: two would answer the
    // same jobs.
    for (uint32_t i = 0; i < processes().lines_used(); ++i) {
      const std::optional<ProcessInfo> other = processes().Read(static_cast<ProcessId>(i));
      if (!other || other->id == lease.id() || other->role != role ||
          other->role_index != role_index)
        continue;
      return Error(Code::kUnavailable,
                   "group %u still has a worker, pid %d, that the router has not cleared away",
                   role_index, other->identity.pid());
    }
  }
  return lease;
}

Result<ProcessLease> Arena::RegisterStandIn(GroupId group) {
  return TakeLine(ProcessRole::kWorker, Index(group));
}

Status Arena::Register(ProcessRole role, uint32_t role_index) {
  SYSONE_CHECK(!lease_, "a process registers once");
  SYSONE_ASSIGN_OR_RETURN(ProcessLease lease, TakeLine(role, role_index));
  self_ = lease.id();
  lease_.emplace(std::move(lease));
  slots_ = std::make_unique<SlotPool>(segment_->base(), self_);
  return {};
}

void Arena::Unregister() {
  lease_.reset();
  self_ = ProcessId::kNone;
  slots_ = std::make_unique<SlotPool>(segment_->base(), self_);
}

void Arena::TakeOver() {
  header()->creator.store(CurrentProcessIdentity().word, std::memory_order_relaxed);
}

void Arena::WakeThrough(const std::string& run_dir) {
  waker_ = std::make_unique<ProcessWaker>(run_dir);
  slots_->SetWaker(waker_.get());
}

ProcessLease& Arena::lease() {
  SYSONE_CHECK(lease_.has_value(), "Register first");
  return *lease_;
}

std::vector<Arena::Recovered> Arena::RecoverDead() {
  std::vector<Recovered> recovered;
  ProcessTable table = processes();
  LoadBoard loads = board();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const std::optional<ProcessInfo> info = table.Read(static_cast<ProcessId>(i));
    if (!info || table.Alive(info->id)) continue;
    Recovered found = {*info, slots_->ReclaimOwner(info->id)};
    loads.ZeroRow(info->id);
    const GroupId group = static_cast<GroupId>(info->role_index);
    // Only the worker that served the group: one that was refused at Register never touched a job.
    if (info->role == ProcessRole::kWorker && loads.Read(group).worker_process == info->id) {
      loads.SetGroupState(group, GroupState::kDead);
      found.slots += slots_->ReturnGroup(group);
      loads.ForgetWorker(
          group);  // after the slots: a router that dies before this is repeated by the next one
    }
    table.Free(info->id);  // last: until here the line keeps a new worker of the group out
    recovered.push_back(found);
  }
  // Jobs that were published to a group that nobody serves, from a snapshot older than its death.
  for (uint32_t g = 0; g < kMaxGroups; ++g) {
    const GroupState state = loads.State(static_cast<GroupId>(g));
    if (state != GroupState::kDead && state != GroupState::kLoading) continue;
    slots_->ReturnReady(static_cast<GroupId>(g));
  }
  return recovered;
}

}  // namespace sysone
