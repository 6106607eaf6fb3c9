// SPDX-License-Identifier: Apache-2.0
#include "worker/stand_in_hub.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "model/model_files.h"
#include "shm_arena/group_bell.h"
#include "shm_arena/heartbeat.h"
#include "shm_arena/router_watch.h"

namespace sysone {
namespace {

constexpr int64_t kAttachWaitUs = 10'000'000;
constexpr size_t kNoticesATurn = 512;

// Readable after Ring, until Quieten. Any thread rings.
class WakeFd {
 public:
  WakeFd() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { SYSONE_CHECK(fd_ >= 0, "no eventfd"); }
  ~WakeFd() { close(fd_); }
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;
  int fd() const { return fd_; }
  void Ring() { eventfd_write(fd_, 1); }
  void Quieten() {
    eventfd_t ignored;
    eventfd_read(fd_, &ignored);
  }

 private:
  const int fd_;
};

// Sleeps on the futex where API servers ring for a group, and passes the notices on: the link's thread sleeps on sockets.
class NoticeRelay {
 public:
  NoticeRelay(Arena& arena, GroupId group, WakeFd& wake)
      : listener_(MakeGroupListener(arena, group, nullptr)),
        wake_(wake),
        thread_([this] { Loop(); }) {}
  ~NoticeRelay() {
    end_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

  // `slots` is replaced.
  void Take(std::vector<SlotHandle>& slots) {
    slots.clear();
    const std::lock_guard lock(mutex_);
    slots.swap(noticed_);
  }

 private:
  void Loop() {
    std::vector<SlotHandle> slots;
    while (!end_.load(std::memory_order_relaxed)) {
      listener_->Wait(100'000, kNoticesATurn, slots);
      if (slots.empty()) continue;
      {
        const std::lock_guard lock(mutex_);
        noticed_.insert(noticed_.end(), slots.begin(), slots.end());
      }
      wake_.Ring();
    }
  }

  const std::unique_ptr<DoorbellListener> listener_;
  WakeFd& wake_;
  std::atomic<bool> end_{false};
  std::mutex mutex_;
  std::vector<SlotHandle> noticed_;  // guarded by mutex_
  std::thread thread_;
};

Result<HostIdentity> OwnIdentity(const ServeOptions& options) {
  SYSONE_ASSIGN_OR_RETURN(const ModelWeights weights, OpenModelWeights(options.model_path));
  return HostIdentity{SysoneVersion(), weights.fingerprint, options.dtype,
                      static_cast<uint32_t>(weights.config.vocab)};
}

std::string Differs(const char* what, const std::string& own, const std::string& theirs) {
  return own == theirs
             ? ""
             : Format("%s is %s there, and %s at the router", what, theirs.c_str(), own.c_str());
}

}  // namespace

std::string WhyNot(const HostIdentity& own, const LinkHello& hello) {
  // As they arrive: cut to what a Hello holds.
  for (const std::string& reason :
       {Differs("the program's version", own.program_version.substr(0, 15), hello.program_version),
        Differs("the model's fingerprint", own.model_fingerprint.substr(0, 63),
                hello.model_fingerprint),
        Differs("--dtype", own.dtype.substr(0, 15), hello.dtype)})
    if (!reason.empty()) return reason;
  return own.vocabulary == hello.vocabulary ? "" : "the model's vocabulary differs";
}

StandInHub::StandInHub(LinkListener& link, HostIdentity own,
                       std::vector<std::unique_ptr<StandIn>> stand_ins)
    : link_(link), own_(std::move(own)), stand_ins_(std::move(stand_ins)) {}

void StandInHub::Receive(int64_t now_us) {
  LinkListener::Peer peer;
  while (link_.Receive(peer, frame_)) {
    const auto its = std::find_if(stand_ins_.begin(), stand_ins_.end(), [&](const auto& stand_in) {
      return stand_in->joined() && stand_in->peer() == peer;
    });
    if (its != stand_ins_.end())
      (*its)->Receive(frame_, now_us);
    else
      Greet(peer, frame_, now_us);
  }
}

void StandInHub::Greet(const LinkListener::Peer& peer, std::span<const std::byte> frame,
                       int64_t now_us) {
  LinkMessage message;
  if (const Status read = ReadLinkMessage(frame, message); !read.ok())
    return Refuse(peer, read.message(), false);
  const auto* const hello = std::get_if<LinkHello>(&message.body);
  if (hello == nullptr) return;  // of a session that is over
  const std::string host = Format("%s, group %u", hello->host.c_str(), hello->group);
  if (const std::string reason = WhyNot(own_, *hello); !reason.empty())
    return Refuse(peer, host + ": " + reason, false);
  StandIn* const place = draining_ ? nullptr : FreePlace(host);
  if (place == nullptr)
    return Refuse(peer,
                  host + (draining_ ? ": the router is stopping"
                                    : Format(": all %zu places for groups of other hosts are taken",
                                             stand_ins_.size())),
                  true);
  last_refusal_.clear();
  place->Join(peer, *hello, now_us);
}

// The one it had before, or else one that nobody had, or any.
StandIn* StandInHub::FreePlace(const std::string& host) {
  StandIn* best = nullptr;
  for (const auto& stand_in : stand_ins_) {
    if (stand_in->joined()) continue;
    if (stand_in->host() == host) return stand_in.get();
    if (best == nullptr || (!best->host().empty() && stand_in->host().empty()))
      best = stand_in.get();
  }
  return best;
}

void StandInHub::Refuse(const LinkListener::Peer& peer, const std::string& reason, bool full) {
  if (std::exchange(last_refusal_, reason) != reason)
    SYSONE_WARNING("link: a host was refused: %s", reason.c_str());
  std::vector<std::byte> frame;
  WriteLinkMessage({0, LinkRefusal{reason, full}}, frame);
  link_.Send(peer, frame);
}

int64_t StandInHub::Turn(int64_t now_us) {
  int64_t next_us = INT64_MAX;
  for (const auto& stand_in : stand_ins_) next_us = std::min(next_us, stand_in->Turn(now_us));
  return next_us;
}

void StandInHub::Drain() {
  draining_ = true;
  for (const auto& stand_in : stand_ins_) stand_in->Drain();
}

bool StandInHub::done() const {
  return std::all_of(stand_ins_.begin(), stand_ins_.end(),
                     [](const auto& stand_in) { return stand_in->done(); });
}

Status RunStandIns(const ServeOptions& options) {
  SYSONE_ASSIGN_OR_RETURN(Arena arena, Arena::Attach(options.instance_name, kAttachWaitUs));
  SYSONE_RETURN_IF_ERROR(arena.Register(ProcessRole::kStandIn, 0));
  arena.WakeThrough(options.run_dir);
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  WakeFd wake;
  const Heartbeat heartbeat(arena, [&] { wake.Ring(); });
  SYSONE_ASSIGN_OR_RETURN(HostIdentity own, OwnIdentity(options));
  std::optional<LinkKeys> keys;
  if (!options.curve_keys.empty()) {
    SYSONE_ASSIGN_OR_RETURN(keys, ReadLinkKeys(options.curve_keys, LinkEnd::kRouter));
  }
  SYSONE_ASSIGN_OR_RETURN(const auto link, LinkListener::Create(options.listen_fd, keys));

  std::vector<std::unique_ptr<StandIn>> stand_ins;
  std::vector<std::unique_ptr<NoticeRelay>> relays;
  for (int g = LocalGroups(options); g < options.data_parallel_size; ++g) {
    const GroupId group{static_cast<uint32_t>(g)};
    SYSONE_ASSIGN_OR_RETURN(ProcessLease line, arena.RegisterStandIn(group));
    stand_ins.push_back(std::make_unique<StandIn>(
        arena, std::move(line), *link,
        StandInOptions{group, static_cast<int32_t>(own.vocabulary),
                       static_cast<int64_t>(options.link_timeout_s * 1e6)}));
    relays.push_back(std::make_unique<NoticeRelay>(arena, group, wake));
  }
  StandInHub hub(*link, std::move(own), std::move(stand_ins));
  arena.lease().SetPhase(ProcessPhase::kReady);
  SYSONE_INFO(
      "waiting for %zu groups of other hosts%s", hub.stand_ins().size(),
      keys ? "" : ", without keys: whoever reaches the port may join and read what is sent");

  std::vector<SlotHandle> noticed;
  int64_t next_us = 0;
  while (!hub.done()) {
    link->Wait(wake.fd(), next_us);
    wake.Quieten();
    if (heartbeat.stop().load(std::memory_order_relaxed)) hub.Drain();
    const int64_t now_us = MonotonicUs();
    hub.Receive(now_us);
    for (size_t i = 0; i < relays.size(); ++i) {
      relays[i]->Take(noticed);
      hub.stand_ins()[i]->TakeNoticed(noticed, now_us);
    }
    next_us = hub.Turn(now_us);
  }
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return {};
}

}  // namespace sysone
