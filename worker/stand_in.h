// Holds the place of a worker group that runs on another host: towards this host's arena it does what a worker does, but where
// a worker makes a pass it sends the job over the link (link/link_message.h) and writes what comes back. So API servers and
// placement need not know that the group is elsewhere, and the slot's word decides here as ever: a job whose host is lost goes
// back to its owner, who places it again, and a result that comes later belongs to no job any more.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "link/link_message.h"
#include "link/link_socket.h"
#include "shm_arena/arena.h"
#include "shm_arena/job_layout.h"

namespace sysone {

struct StandInOptions {
  GroupId group = GroupId::kNone;
  int32_t vocabulary = 0;
  int64_t link_timeout_us = 3'000'000;  // without a word from the host
};

// One group. One thread, the one of the link; arena and link outlive it.
class StandIn {
 public:
  // `line`: of Arena::RegisterStandIn.
  StandIn(Arena& arena, ProcessLease line, LinkListener& link, const StandInOptions& options);

  bool joined() const { return session_ != 0; }
  const LinkListener::Peer& peer() const { return peer_; }
  // "host-b, group 0": who is there, or was there last; empty before the first time.
  const std::string& host() const { return host_; }

  // Begins a session with a host that was found to fit. Not while one is joined.
  void Join(const LinkListener::Peer& peer, const LinkHello& hello, int64_t now_us);
  // A frame of the joined peer; a damaged one ends the session.
  void Receive(std::span<const std::byte> frame, int64_t now_us);
  // Jobs of which the notice board told.
  void TakeNoticed(std::span<const SlotHandle> slots, int64_t now_us);
  // What time brings: beats, sweeps, a host that is silent for too long. Call often; returns when it is due next.
  int64_t Turn(int64_t now_us);
  // No new jobs; when the last one is answered, the host is told that it is over. done() then.
  void Drain();
  bool done() const { return draining_ && !joined(); }

 private:
  struct Job {
    SlotHandle slot;
    JobView view;
    int64_t publish_us = 0;
  };

  void On(const LinkStatus& status, int64_t now_us);
  void On(const LinkResult& result, int64_t now_us);
  void On(const LinkBye&, int64_t now_us);
  template <class Body>
  void On(const Body&, int64_t now_us);
  void Take(SlotHandle slot, int64_t now_us);
  void Sweep(int64_t now_us);
  void Finish(Job& job, const LinkResult& result, int64_t now_us);
  void Send(const LinkBody& body);
  // Every job goes back to its owner.
  void GiveBack(GroupState state);
  void Lose(const std::string& why);
  void EndSession();
  bool TakesJobs() const { return joined() && ready_; }

  Arena& arena_;
  ProcessLease line_;
  LinkListener& link_;
  const StandInOptions options_;
  const std::string name_;  // for the log: "group 1"
  LinkListener::Peer peer_;
  std::string host_;
  uint64_t session_ = 0;  // 0: nobody is joined
  uint64_t last_session_ = 0;
  bool ready_ = false;  // the far group takes jobs
  bool draining_ = false;
  bool host_drains_ = false;
  LinkStatus status_;  // the last one
  int64_t heard_us_ = 0;
  int64_t next_alive_us_ = 0;
  int64_t next_sweep_us_ = 0;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, Job> jobs_;  // sent and not yet answered, by id
  std::vector<std::byte> frame_;            // reused
};

}  // namespace sysone
