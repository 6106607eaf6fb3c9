// How a router takes over from one that died. What is safe in which order:
//   * A child is recorded right after it was started. Killed in between, the router leaves a stray: a child of the keeper that no
//     record knows, which goes before anything else is started.
//   * Deaths are not recorded first, but found again: a recorded process that does not live has died meanwhile.
//   * The rest is repeated by its successor without harm: Arena::RecoverDead, LoadBoard::StartGroup, the orders of a drain.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "router/reattach_plan.h"
#include "router/supervisor.h"

namespace sysone {
namespace {

// A process that was sent SIGKILL is gone when its memory is unmapped.
constexpr int64_t kKilledWaitUs = 5'000'000;

SeenProcess See(ProcessIdentity identity) { return {identity, ParentOf(identity.pid())}; }

}  // namespace

void Supervisor::Remember() {
  SupervisionRecord record;
  record.child_count = static_cast<uint32_t>(children_.size());
  for (size_t i = 0; i < children_.size(); ++i)
    record.children[i] = {children_[i].process, children_[i].serving, children_[i].life};
  record.start_us = start_us_;
  record.announced = announced_;
  record.exit_status = exit_status_;
  memory_.Save(record);
}

void Supervisor::Reattach(int64_t now_us) {
  const SupervisionRecord record = memory_.record();
  SYSONE_CHECK(record.child_count == children_.size(), "%u children are recorded, there are %zu",
               record.child_count, children_.size());
  start_us_ = record.start_us;
  announced_ = record.announced;
  exit_status_ = record.exit_status;

  std::vector<SeenProcess> orphans;
  for (const pid_t pid : ChildrenOf(keeper_)) {
    const ProcessIdentity identity = IdentityOfPid(pid);
    if (identity && pid != getpid()) orphans.push_back(See(identity));
  }
  std::vector<SeenProcess> registered;
  const ProcessTable table = arena_.processes();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const auto info = table.Read(static_cast<ProcessId>(i));
    if (info && info->identity.pid() != getpid() && info->identity.pid() != keeper_ &&
        IdentityAlive(info->identity))
      registered.push_back(See(info->identity));
  }
  const ReattachPlan plan =
      PlanReattach({record.children.data(), children_.size()}, IdentityAlive, orphans, registered);
  EndStrays(plan.strays);

  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    child.life = record.children[i].life;
    child.serving = record.children[i].serving;
    child.process = record.children[i].process;
    child.last_beat_us = now_us;
    if (plan.keep[i]) {
      child.pid = child.process.pid();
      child.adopted = true;
      child.end = ProcessEnd(child.process);
    } else if (child.life.state() == ChildLife::State::kRunning ||
               child.life.state() == ChildLife::State::kReady) {
      child.pid = child.process.pid();
      OnDeath(child, std::nullopt, now_us);
    }
  }
  SYSONE_INFO("took over %td of %zu processes from the router before",
              std::count(plan.keep.begin(), plan.keep.end(), true), children_.size());
  if (exit_status_ != kExitOk) GiveUp("", exit_status_, now_us);
}

void Supervisor::EndStrays(const std::vector<ProcessIdentity>& strays) const {
  for (const ProcessIdentity stray : strays) {
    SYSONE_WARNING("ending process %d, which no router remembers", stray.pid());
    // A child of a router leads a group of its own.
    if (getpgid(stray.pid()) == stray.pid()) kill(-stray.pid(), SIGKILL);
    kill(stray.pid(), SIGKILL);
  }
  const int64_t until_us = MonotonicUs() + kKilledWaitUs;
  for (const ProcessIdentity stray : strays)
    while (IdentityAlive(stray) && MonotonicUs() < until_us) {
      const ProcessEnd end(stray);
      const int fd = end.fd();
      signals_.Wait(std::min(until_us, MonotonicUs() + 5'000), {&fd, 1});
    }
}

}  // namespace sysone
