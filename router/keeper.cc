// SPDX-License-Identifier: Apache-2.0
#include "router/keeper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "router/child_process.h"
#include "shm_arena/router_watch.h"

namespace sysone {
namespace {

constexpr int64_t kLookUs = 1'000'000;  // for the router's heartbeat

}  // namespace

int Keeper::Run(const Route& route) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a dead router started becomes a child of the keeper
  for (;;) {
    WaitForTurn();
    const pid_t keeper = getpid();
    router_life_.Started(MonotonicUs());
    if (router_life_.restarts() > 0) arena_.metrics().Add(Counter::kRouterRestarts);
    fflush(stdout);
    const pid_t router = fork();
    if (router == 0) {
      BecomeRouter();
      const std::optional<int> exit_status = route(keeper);
      fflush(stdout);
      // What this process inherited is the keeper's to remove.
      if (exit_status) _exit(*exit_status);
      BecomeKeeper();
      continue;
    }
    if (router < 0) SYSONE_ERROR("cannot start the router: %s", strerror(errno));
    const int wait_status = router < 0 ? SIGABRT : Watch(router);
    if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
    OnDeath(router, wait_status);
    if (router_life_.state() == ChildLife::State::kGivenUp ||
        stopping_deaths_ >= kRouterRestarts.start_attempts)
      return GiveUp();
  }
}

void Keeper::WaitForTurn() {
  while (memory_.stop_requests() == 0 && MonotonicUs() < router_life_.restart_at_us()) {
    signals_.Wait(router_life_.restart_at_us());
    TakeStopRequests();
  }
}

int Keeper::Watch(pid_t router) {
  for (;;) {
    const int asked_before = asked_;
    TakeStopRequests();
    if (asked_ > asked_before) kill(router, SIGCHLD);  // ends its wait, so that it looks
    int wait_status = 0;
    // Also what dead routers left, and what those left: nothing stays a zombie.
    for (pid_t ended = 0; (ended = waitpid(-1, &wait_status, WNOHANG)) > 0;)
      if (ended == router) return wait_status;
    KillIfStuck(router);
    signals_.Wait(MonotonicUs() + kLookUs);
  }
}

void Keeper::KillIfStuck(pid_t router) const {
  int64_t last_us = router_life_.started_us();
  const ProcessTable table = arena_.processes();
  for (uint32_t i = 0; i < table.lines_used(); ++i) {
    const auto info = table.Read(ProcessId{i});
    if (info && info->role == ProcessRole::kRouter && info->identity.pid() == router)
      last_us = std::max(last_us, info->heartbeat_us);
  }
  const int64_t silent_us = MonotonicUs() - last_us;
  if (silent_us < stuck_us_) return;
  SYSONE_ERROR("the router (pid %d) is stuck: no heartbeat for %.1f s; killing it", router,
               static_cast<double>(silent_us) * 1e-6);
  kill(router, SIGKILL);
}

void Keeper::OnDeath(pid_t router, int wait_status) {
  // Children need not fear for their router as long as there is a keeper.
  arena_.TakeOver();
  if (memory_.record().child_count > 0) router_life_.BecameReady(router_life_.started_us());
  router_life_.Died(MonotonicUs(), false);
  if (memory_.stop_requests() > 0) ++stopping_deaths_;
  SYSONE_WARNING("the router (pid %d) ended with %s", router, ExitText(wait_status).c_str());
}

int Keeper::GiveUp() {
  SYSONE_ERROR("the router crashes again and again; ending");
  const Status ended = EndEverybody(arena_, signals_);
  if (!ended.ok()) SYSONE_ERROR("%s", ended.message().c_str());
  return kExitFailure;
}

void Keeper::TakeStopRequests() {
  asked_ += signals_.TakeStopRequests();
  memory_.AskToStop(asked_, MonotonicUs());
}

void Keeper::BecomeRouter() {
  prctl(PR_SET_NAME, "sysone-router");
  setpgid(0, 0);  // a Ctrl-C reaches the keeper only
  // The death of the keeper ends a wait; whoever waits looks for its parent then, and before.
  prctl(PR_SET_PDEATHSIG, SIGCHLD);
}

void Keeper::BecomeKeeper() {
  prctl(PR_SET_NAME, "sysone");
  prctl(PR_SET_PDEATHSIG, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  SYSONE_WARNING("the keeper was killed; process %d keeps the instance now: stop it with kill %d",
                 getpid(), getpid());
  arena_.metrics().Add(Counter::kKeeperRestarts);
  router_life_ = ChildLife(kRouterRestarts);
  asked_ = memory_.stop_requests();
  stopping_deaths_ = 0;
}

Status EndEverybody(const Arena& arena, SignalSource& signals) {
  const ProcessTable table = arena.processes();
  const int64_t started_us = MonotonicUs();
  const int64_t give_up_us = started_us + 2 * kRouterLeaseUs;
  bool told = false;
  bool killed = false;
  for (;;) {
    int alive = 0;
    const bool kill_now = !killed && MonotonicUs() - started_us > kRouterLeaseUs;
    for (uint32_t i = 0; i < table.lines_used(); ++i) {
      const auto info = table.Read(ProcessId{i});
      if (!info || info->identity.pid() == getpid() || !IdentityAlive(info->identity)) continue;
      ++alive;
      if (!told) kill(info->identity.pid(), SIGTERM);
      if (kill_now) kill(info->identity.pid(), SIGKILL);
    }
    if (alive == 0) return {};
    if (!told) SYSONE_INFO("ending %d processes that have no router", alive);
    told = true;
    killed = killed || kill_now;
    if (MonotonicUs() > give_up_us)
      return Error(Code::kUnavailable, "%d processes of the instance do not end", alive);
    signals.Wait(MonotonicUs() + 20'000);
    if (signals.TakeStopRequests() > 0)
      return Error(Code::kCancelled, "stopped while an earlier instance ended");
  }
}

}  // namespace sysone
