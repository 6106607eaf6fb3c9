// The far end of a stand-in (worker/stand_in.h), on a host that lends a worker group to another host's router: it does what an
// API server does towards this host's arena, but the jobs come over the link and the results go back there. It places nothing:
// a link is that of one group.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/serve_options.h"
#include "base/status.h"
#include "link/link_message.h"
#include "link/link_socket.h"
#include "shm_arena/arena.h"
#include "shm_arena/doorbell.h"
#include "shm_arena/wake_socket.h"

namespace sysone {

struct IntakeOptions {
  GroupId group = GroupId::kNone;  // of this host
  std::string router_address;      // tcp://HOST:PORT
  std::optional<LinkKeys> keys;
  LinkHello hello;  // who this host is
  int64_t link_timeout_us = 3'000'000;
};

// One thread; arena, doorbell and wake socket (this process's) outlive it.
class Intake {
 public:
  Intake(Arena& arena, Doorbell& doorbell, WakeSocket& wake, IntakeOptions options);
  ~Intake();

  // Connects, when it is time, and does what there is to do; waits up to 50 ms for it. Call again and again.
  void Step();
  // No new jobs: the router is told, and ends the link when the last one is answered. done() then, or when the link is lost.
  void Drain();
  bool joined() const { return session_ != 0; }
  bool done() const { return draining_ && connection_ == nullptr; }

 private:
  struct Job;

  void Connect(int64_t now_us);
  void Receive(int64_t now_us);
  void On(const LinkWelcome& welcome);
  void On(const LinkRefusal& refusal);
  void On(const LinkJob& job);
  void On(const LinkCancel& cancel);
  void On(const LinkAlive&) {}
  void On(const LinkBye&);
  template <class Body>
  void On(const Body&);
  // False: no slot is free now.
  bool Place(uint64_t id, int64_t deadline_us, int32_t priority, std::span<const std::byte> bytes);
  void PlaceWaiting();
  void LookAtNotices();
  void LookAt(uint64_t id);
  void SendStatus(LinkGroupState state);
  void Send(const LinkBody& body);
  void SendFailure(uint64_t id, Code code) { Send(LinkResult{id, code, 0, 0, {}}); }
  LinkGroupState State() const;
  // Ends the connection; the next one is tried a moment later.
  void Break(const std::string& why);
  void Forget();

  Arena& arena_;
  Doorbell& doorbell_;
  WakeSocket& wake_;
  const IntakeOptions options_;
  NoticeBoard notices_;
  const NoticeReceiver me_;
  std::unique_ptr<LinkConnection> connection_;
  uint64_t session_ = 0;  // 0: not joined
  bool draining_ = false;
  LinkGroupState told_ = LinkGroupState::kAway;  // what the router was told last
  int64_t heard_us_ = 0;                         // or when the connection was begun
  int64_t next_status_us_ = 0;
  int64_t next_sweep_us_ = 0;
  int64_t next_connect_us_ = 0;
  std::string last_trouble_;  // one line in the log for what happens again and again

  // A job that came while all slots were taken.
  struct Waiting {
    uint64_t id;
    int64_t deadline_us;
    int32_t priority;
    std::vector<std::byte> bytes;
  };
  std::unordered_map<uint64_t, std::unique_ptr<Job>> jobs_;
  std::vector<uint64_t> by_slot_;  // id of the job in each slot
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  std::vector<std::byte> frame_, sent_;  // reused
  std::vector<uint32_t> noticed_;
};

// The whole process, until it is told to stop. Returns why it could not start; afterwards only ok.
Status RunIntake(const ServeOptions& options);

}  // namespace sysone
