// SPDX-License-Identifier: Apache-2.0
#include "router/supervisor.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"

namespace sysone {
namespace {

constexpr int64_t kBusyTickUs =
    50'000;  // while somebody is missing: phases are read from the process table
constexpr int64_t kEndingTickUs = 5'000;    // while the last life of a child that is due still ends
constexpr int64_t kCalmTickUs = 500'000;    // otherwise: heartbeats
constexpr int64_t kTakeBackUs = 1'000'000;  // sweep for processes that died unseen
constexpr double kMicrosPerSecond = 1e6;

// Who takes requests and who answers them; the first end first.
constexpr ProcessRole kFrontRoles[] = {ProcessRole::kApiServer, ProcessRole::kIntake};
constexpr ProcessRole kGroupRoles[] = {ProcessRole::kWorker, ProcessRole::kStandIn};

bool IsOneOf(ProcessRole role, std::span<const ProcessRole> roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

int64_t Micros(double seconds) { return static_cast<int64_t>(seconds * kMicrosPerSecond); }

}  // namespace

Supervisor::Supervisor(const InstanceFacts& facts, const Listener& listener, Arena& arena,
                       SignalSource& signals, InstanceMemory& memory, pid_t keeper)
    : facts_(facts),
      listener_(listener),
      arena_(arena),
      signals_(signals),
      memory_(memory),
      keeper_(keeper),
      drain_(Micros(facts.options.shutdown_timeout_s)) {
  heartbeat_limits_.stuck_us = Micros(facts.options.stuck_after_s);
  heartbeat_limits_.late_us = std::min(heartbeat_limits_.late_us, heartbeat_limits_.stuck_us / 2);
  for (const ChildPlace& place : ChildPlaces(facts.options))
    children_.push_back({{place.role, place.index, ProcessPhase::kAbsent, 0}, ChildLife()});
}

std::optional<int> Supervisor::Run() {
  start_us_ = MonotonicUs();
  if (memory_.record().child_count > 0) Reattach(start_us_);
  arena_.lease().SetPhase(ProcessPhase::kReady);
  for (;;) {
    const int64_t now_us = MonotonicUs();
    arena_.lease().Beat(now_us);
    ObeyStopRequests(now_us);
    Reap(now_us);
    if (!drain_.active()) StartDue(now_us);
    ReadTable(now_us);
    CheckHeartbeats(now_us);
    TakeBack(now_us);
    if (!drain_.active()) Report(now_us);
    Remember();
    if (getppid() != keeper_) return std::nullopt;
    const DrainPlan::Order order = drain_.Next(now_us, Alive(kFrontRoles), Alive(kGroupRoles));
    if (order == DrainPlan::Order::kFinished) break;
    ObeyDrain(order);
    Wait(now_us);
  }
  arena_.RecoverDead();
  SYSONE_INFO("stopped");
  return exit_status_;
}

void Supervisor::ObeyStopRequests(int64_t now_us) {
  asked_to_stop_ += signals_.TakeStopRequests();
  memory_.AskToStop(asked_to_stop_, now_us);
  while (drain_.requests() < memory_.stop_requests()) {
    drain_.Request(memory_.first_stop_us());
    SYSONE_INFO(drain_.forced() ? "asked again to stop: ending at once"
                                : "asked to stop: requests in flight are finished first (a "
                                  "second signal ends at once)");
  }
}

void Supervisor::StartDue(int64_t now_us) {
  for (Child& child : children_) {
    if (child.life.state() != ChildLife::State::kWaiting || child.life.restart_at_us() > now_us)
      continue;
    // A group's rank 0 may outlive its mpirun by a moment; its place is free when it is gone and what it held is taken back.
    if (PlaceTaken(child)) continue;
    next_take_back_us_ = now_us;
    TakeBack(now_us);
    Start(child, now_us);
  }
}

bool Supervisor::PlaceTaken(const Child& child) const {
  const ProcessTable table = arena_.processes();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const auto info = table.Read(static_cast<ProcessId>(i));
    if (info && info->role == child.status.role && info->role_index == child.status.index &&
        IdentityAlive(info->identity))
      return true;
  }
  return IdentityAlive(child.serving);
}

void Supervisor::Start(Child& child, int64_t now_us) {
  const ProcessRole role = child.status.role;
  const std::string name = ChildName(role, child.status.index);
  const GroupRange groups = GroupsOf(facts_.options, {role, child.status.index});
  for (uint32_t g = groups.first; g < groups.last; ++g) {
    // Jobs that an API server placed here from an old snapshot while the group was down: their owners place them again.
    arena_.slots().ReturnGroup(GroupId{g});
    arena_.board().StartGroup(GroupId{g});
    arena_.prefixes().Forget(GroupId{g});
  }
  child.life.Started(now_us);
  if (child.life.restarts() > 0) {
    arena_.metrics().Add(IsOneOf(role, kGroupRoles) ? Counter::kWorkerRestarts
                                                    : Counter::kApiServerRestarts);
    SYSONE_INFO("%s: starting again (restart %d)", name.c_str(), child.life.restarts());
  }
  ChildCommand command{ChildProgram(facts_, role), ChildArgs(facts_, role, child.status.index), -1,
                       -1, ChildEnvironment(facts_, role)};
  if (role == ProcessRole::kApiServer) command.keep_fd = listener_.fd();
  if (role == ProcessRole::kStandIn) command.keep_fd = facts_.link_fd;
  const auto pid = StartChild(command);
  if (!pid.ok()) {
    SYSONE_ERROR("%s: %s", name.c_str(), pid.status().message().c_str());
    // A program that is not there counts as a hopeless end.
    child.life.Died(now_us, true);
    if (child.life.state() == ChildLife::State::kGivenUp)
      GiveUp(name + " cannot be started", kExitSetup, now_us);
    return;
  }
  child.pid = *pid;
  child.process = IdentityOfPid(*pid);
  child.adopted = false;
  child.end = {};
  child.serving = {};
  child.last_beat_us = now_us;
  child.late_reported = false;
  child.killed = false;
  Remember();
  SYSONE_DEBUG("%s: started with pid %d", name.c_str(), child.pid);
}

void Supervisor::Reap(int64_t now_us) {
  for (Child& child : children_) {
    int wait_status = 0;
    if (child.pid == 0) continue;
    if (child.adopted) {
      if (!IdentityAlive(child.process)) OnDeath(child, std::nullopt, now_us);
    } else if (waitpid(child.pid, &wait_status, WNOHANG) == child.pid) {
      OnDeath(child, wait_status, now_us);
    }
  }
}

void Supervisor::OnDeath(Child& child, std::optional<int> wait_status, int64_t now_us) {
  const std::string name = ChildName(child.status.role, child.status.index);
  const std::string how =
      wait_status ? ExitText(*wait_status) : "an exit status that went to another router";
  const bool hopeless = wait_status && IsHopelessExit(*wait_status);
  const pid_t pid = child.pid;
  child.pid = 0;
  child.process = {};
  child.status.phase = ProcessPhase::kAbsent;
  child.status.progress = 0;
  child.life.Died(now_us, hopeless);
  const GroupRange groups = GroupsOf(facts_.options, {child.status.role, child.status.index});
  for (uint32_t g = groups.first; g < groups.last; ++g)
    arena_.board().SetGroupState(GroupId{g}, GroupState::kDead);
  next_take_back_us_ = now_us;
  if (drain_.active()) {
    if (wait_status != 0)
      SYSONE_WARNING("%s (pid %d) ended with %s", name.c_str(), pid, how.c_str());
    return;
  }
  if (child.life.state() == ChildLife::State::kGivenUp) {
    GiveUp(Format("%s ended with %s before it was ever ready; its own messages stand above",
                  name.c_str(), how.c_str()),
           hopeless ? kExitSetup : kExitFailure, now_us);
    return;
  }
  SYSONE_WARNING("%s (pid %d) ended with %s; starting it again in %ld ms", name.c_str(), pid,
                 how.c_str(), (child.life.restart_at_us() - now_us) / 1000);
}

void Supervisor::ReadTable(int64_t now_us) {
  const ProcessTable table = arena_.processes();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const auto info = table.Read(static_cast<ProcessId>(i));
    if (!info || info->phase == ProcessPhase::kAbsent) continue;
    for (Child& child : children_) {
      if (child.pid == 0 || child.status.role != info->role ||
          child.status.index != info->role_index || !IsServing(child, info->identity))
        continue;
      child.status.phase = info->phase;
      child.status.progress = info->progress;
      child.last_beat_us = std::max(child.last_beat_us, info->heartbeat_us);
      if (info->phase == ProcessPhase::kReady) child.life.BecameReady(now_us);
    }
  }
}

bool Supervisor::IsServing(Child& child, ProcessIdentity identity) {
  const pid_t pid = identity.pid();
  if (!child.serving && (pid == child.pid || ParentOf(pid) == child.pid)) child.serving = identity;
  return child.serving == identity;
}

void Supervisor::CheckHeartbeats(int64_t now_us) {
  for (Child& child : children_) {
    if (child.pid == 0 || child.killed) continue;
    const Heartbeat judged = JudgeHeartbeat(now_us, child.last_beat_us, heartbeat_limits_);
    const std::string name = ChildName(child.status.role, child.status.index);
    const double age_s = static_cast<double>(now_us - child.last_beat_us) / kMicrosPerSecond;
    if (judged == Heartbeat::kStuck) {
      SYSONE_ERROR("%s (pid %d) is stuck: no heartbeat for %.1f s, phase %s; killing it",
                   name.c_str(), child.pid, age_s, ProcessPhaseName(child.status.phase));
      child.killed = true;
      kill(-child.pid, SIGKILL);
    } else if (judged == Heartbeat::kLate && !child.late_reported) {
      SYSONE_WARNING("%s (pid %d) has not given a heartbeat for %.1f s, phase %s", name.c_str(),
                     child.pid, age_s, ProcessPhaseName(child.status.phase));
      child.late_reported = true;
    } else if (judged == Heartbeat::kFine && child.late_reported) {
      SYSONE_INFO("%s gives heartbeats again", name.c_str());
      child.late_reported = false;
    }
  }
}

void Supervisor::Report(int64_t now_us) {
  const std::vector<ChildStatus> statuses = Statuses();
  for (const std::string& line : progress_.Update(statuses)) SYSONE_INFO("%s", line.c_str());
  const bool all_ready = AllReady(statuses);
  if (all_ready && !announced_) {
    const auto& names = facts_.options.served_model_names;
    printf("sysone is ready on %s (model %s, %s)\n", listener_.url().c_str(),
           names.empty() ? facts_.served_name.c_str() : names[0].c_str(),
           PartsText(facts_.options).c_str());
    fflush(stdout);
    announced_ = true;
    Remember();
  } else if (all_ready && !all_ready_) {
    SYSONE_INFO("everything is ready again");
  }
  all_ready_ = all_ready;
  if (!announced_ && now_us - start_us_ >= Micros(facts_.options.ready_timeout_s))
    GiveUp(Format("not ready after %g s (--ready-timeout): %s", facts_.options.ready_timeout_s,
                  MissingText(statuses).c_str()),
           kExitFailure, now_us);
}

void Supervisor::TakeBack(int64_t now_us) {
  for (const Child& child : children_) {
    // Groups that are down, rank 0 included: whatever was placed there since goes back to its owner.
    if (child.life.state() != ChildLife::State::kWaiting || IdentityAlive(child.serving)) continue;
    const GroupRange groups = GroupsOf(facts_.options, {child.status.role, child.status.index});
    for (uint32_t g = groups.first; g < groups.last; ++g) arena_.slots().ReturnGroup(GroupId{g});
  }
  if (now_us < next_take_back_us_) return;
  next_take_back_us_ = now_us + kTakeBackUs;
  for (const Arena::Recovered& recovered : arena_.RecoverDead()) {
    if (recovered.slots == 0) continue;
    const ProcessInfo& process = recovered.process;
    SYSONE_INFO("%s: %u %s", ChildName(process.role, process.role_index).c_str(), recovered.slots,
                process.role == ProcessRole::kWorker ? "jobs given back, to be placed again"
                                                     : "slots reclaimed");
  }
}

void Supervisor::GiveUp(const std::string& reason, int exit_status, int64_t now_us) {
  if (exit_status_ == kExitOk) {
    SYSONE_ERROR("%s", reason.c_str());
    exit_status_ = exit_status;
  }
  // Nothing is being served yet, so there is nothing to wait for.
  while (!drain_.forced()) drain_.Request(now_us);
}

void Supervisor::ObeyDrain(DrainPlan::Order order) {
  switch (order) {
    case DrainPlan::Order::kNone:
    case DrainPlan::Order::kFinished:
      return;
    case DrainPlan::Order::kEndApiServers:
      return Send(kFrontRoles, SIGTERM);
    case DrainPlan::Order::kEndWorkers:
      return Send(kGroupRoles, SIGTERM);
    case DrainPlan::Order::kKillAll:
      if (!drain_.forced())
        SYSONE_WARNING("--shutdown-timeout is over; killing %s", MissingText(Statuses()).c_str());
      return Send({}, SIGKILL);
  }
}

void Supervisor::Send(std::span<const ProcessRole> roles, int signal_number) {
  for (const Child& child : children_) {
    if (child.pid == 0 || (!roles.empty() && !IsOneOf(child.status.role, roles))) continue;
    // A group that is asked to end is asked through rank 0, which finishes its jobs and lets the others go: mpirun would kill
    // them. Killed, mpirun takes all of them with it (worker/worker.cc).
    if (signal_number != SIGKILL && child.serving)
      kill(child.serving.pid(), signal_number);
    else
      kill(-child.pid, signal_number);
  }
}

int Supervisor::Alive(std::span<const ProcessRole> roles) const {
  return static_cast<int>(std::count_if(
      children_.begin(), children_.end(),
      [roles](const Child& child) { return child.pid != 0 && IsOneOf(child.status.role, roles); }));
}

std::vector<ChildStatus> Supervisor::Statuses() const {
  std::vector<ChildStatus> statuses;
  for (const Child& child : children_) statuses.push_back(child.status);
  return statuses;
}

void Supervisor::Wait(int64_t now_us) const {
  std::vector<int> ends;
  for (const Child& child : children_)
    if (child.pid != 0 && child.adopted) ends.push_back(child.end.fd());
  signals_.Wait(WakeUpUs(now_us), ends);
}

int64_t Supervisor::WakeUpUs(int64_t now_us) const {
  int64_t wake_us = now_us + (all_ready_ && !drain_.active() ? kCalmTickUs : kBusyTickUs);
  for (const Child& child : children_)
    if (!drain_.active() && child.life.state() == ChildLife::State::kWaiting)
      wake_us = std::min(wake_us, std::max(child.life.restart_at_us(), now_us + kEndingTickUs));
  return wake_us;
}

}  // namespace sysone
