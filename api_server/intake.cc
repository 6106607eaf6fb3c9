// SPDX-License-Identifier: Apache-2.0
#include "api_server/intake.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "model/model_files.h"
#include "shm_arena/group_bell.h"
#include "shm_arena/heartbeat.h"
#include "shm_arena/job_layout.h"
#include "shm_arena/router_watch.h"

namespace sysone {
namespace {

constexpr int64_t kAttachWaitUs = 10'000'000;
// Longest sleep: jobs are looked over, and the group's state read, this often.
constexpr int64_t kSweepUs = 50'000;
// Statuses within a time-out.
constexpr int64_t kBeats = 12;
constexpr int64_t kReconnectUs = 300'000;
// A router that does not fit is asked again this often: it may be replaced.
constexpr int64_t kRefusedUs = 1'000'000;
// Jobs that wait for a slot of this host's arena. A router sends no more than its own arena holds; this bounds one that does.
constexpr size_t kMostWaitingBytes = size_t{256} << 20;

}  // namespace

// From its slot's claim to its end.
struct Intake::Job {
  Job(SlotPool& pool_, SlotHandle slot_, const JobView& view_)
      : pool(pool_), slot(slot_), view(view_) {}
  ~Job() { pool.Release(slot); }

  SlotPool& pool;
  const SlotHandle slot;
  const JobView view;
  std::optional<OutstandingLoad> load;
};

Intake::Intake(Arena& arena, Doorbell& doorbell, WakeSocket& wake, IntakeOptions options)
    : arena_(arena),
      doorbell_(doorbell),
      wake_(wake),
      options_(std::move(options)),
      notices_(arena.notices()),
      me_(NoticeReceiver::Of(arena.self())),
      by_slot_(arena.slots().slot_count()) {}

Intake::~Intake() = default;

void Intake::Step() {
  int64_t now_us = MonotonicUs();
  if (connection_ == nullptr && !draining_ && now_us >= next_connect_us_) Connect(now_us);
  int64_t until_us = now_us + kSweepUs;
  if (joined()) until_us = std::min({until_us, next_sweep_us_, next_status_us_});
  if (!notices_.FallAsleepOnSocket(me_)) until_us = now_us;
  if (connection_ != nullptr) {
    connection_->Wait(wake_.fd(), until_us);
  } else {
    pollfd wake{wake_.fd(), POLLIN, 0};
    poll(&wake, 1, static_cast<int>((until_us - now_us) / 1'000));
  }
  notices_.WakeUp(me_);
  wake_.Drain();
  now_us = MonotonicUs();
  Receive(now_us);
  LookAtNotices();
  if (!joined()) return;
  if (now_us >= next_sweep_us_) {
    next_sweep_us_ = now_us + kSweepUs;
    std::vector<uint64_t> ids;
    for (const auto& [id, job] : jobs_) ids.push_back(id);
    for (const uint64_t id : ids) LookAt(id);
  }
  PlaceWaiting();
  if (now_us >= next_status_us_ || State() != told_) SendStatus(State());
}

void Intake::Drain() {
  draining_ = true;
  if (!joined()) connection_.reset();
}

void Intake::Connect(int64_t now_us) {
  auto connection = LinkConnection::Connect(options_.router_address, options_.keys);
  if (!connection.ok()) return Break(connection.status().message());
  connection_ = *std::move(connection);
  heard_us_ = now_us;
  Send(options_.hello);
}

void Intake::Receive(int64_t now_us) {
  LinkMessage message;
  while (connection_ != nullptr && connection_->Receive(frame_)) {
    if (const Status read = ReadLinkMessage(frame_, message); !read.ok())
      return Break(read.message());
    heard_us_ = now_us;
    if (const auto* const welcome = std::get_if<LinkWelcome>(&message.body); welcome && !joined()) {
      if (message.session == 0) return Break("it opened no session");
      session_ = message.session;
      On(*welcome);
      continue;
    }
    if (message.session != session_) continue;
    std::visit([&](const auto& body) { On(body); }, message.body);
  }
  if (connection_ == nullptr) return;
  if (const std::string why = connection_->broken(); !why.empty()) return Break(why);
  if (now_us - heard_us_ > options_.link_timeout_us)
    Break(Format("nothing was heard of it for %.1f s",
                 static_cast<double>(now_us - heard_us_) * 1e-6));
}

void Intake::On(const LinkWelcome& welcome) {
  SYSONE_INFO("joined the router at %s as its group %u", options_.router_address.c_str(),
              welcome.group);
  last_trouble_.clear();
  told_ = LinkGroupState::kAway;
  next_status_us_ = 0;
  next_sweep_us_ = 0;
}

void Intake::On(const LinkRefusal& refusal) {
  Break("it refused this host: " + refusal.reason);
  if (!refusal.full) next_connect_us_ = MonotonicUs() + kRefusedUs;
}

template <class Body>
void Intake::On(const Body&) {
  Break("it sent what a router does not send");
}

void Intake::On(const LinkBye&) {
  SYSONE_INFO("the router at %s has ended the link", options_.router_address.c_str());
  Break("");
}

void Intake::On(const LinkJob& job) {
  // Sent before the router knew: it has given the job back when it hears of it.
  if (told_ == LinkGroupState::kAway) return;
  if (jobs_.contains(job.id)) return Break("it sent a job twice");
  const int64_t deadline_us = MonotonicUs() + std::min<int64_t>(job.remaining_us, int64_t{1} << 50);
  if (waiting_.empty() && Place(job.id, deadline_us, job.priority, job.bytes)) return;
  if (joined()) {
    waiting_bytes_ += job.bytes.size();
    if (waiting_bytes_ > kMostWaitingBytes) return Break("it sent more jobs than fit anywhere");
    waiting_.push_back({job.id, deadline_us, job.priority, {job.bytes.begin(), job.bytes.end()}});
  }
}

void Intake::On(const LinkCancel& cancel) {
  jobs_.erase(cancel.id);
  const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const Waiting& waiting) { return waiting.id == cancel.id; });
  if (at == waiting_.end()) return;
  waiting_bytes_ -= at->bytes.size();
  waiting_.erase(at);
}

bool Intake::Place(uint64_t id, int64_t deadline_us, int32_t priority,
                   std::span<const std::byte> bytes) {
  SlotPool& slots = arena_.slots();
  const auto fail = [&](const Status& status, Code code) {
    SYSONE_ERROR("a job of the router cannot be done: %s", status.message().c_str());
    SendFailure(id, code);
    return true;
  };
  const auto needed = InlineJobBytes(bytes, slots.largest_payload());
  if (!needed.ok()) return fail(needed.status(), Code::kInternal);
  const auto slot = slots.Claim(arena_.self(), *needed);
  if (!slot.ok()) return false;
  const std::span<std::byte> payload = slots.payload(*slot);
  std::memcpy(payload.data(), bytes.data(), bytes.size());
  std::memset(payload.data() + bytes.size(), 0, *needed - bytes.size());
  const auto view = JobView::Open(payload, static_cast<int32_t>(options_.hello.vocabulary));
  if (!view.ok()) {
    slots.Release(*slot);
    return fail(view.status(), Code::kInternal);
  }
  auto job = std::make_unique<Job>(slots, *slot, *view);
  job->load.emplace(arena_.board(), arena_.self(), options_.group, view->token_count());
  if (!slots.Publish(*slot, options_.group,
                     {MonotonicUs(), deadline_us, priority, static_cast<uint32_t>(*needed)}))
    return fail(Error(Code::kInternal, "the slot was taken from its owner"), Code::kInternal);
  doorbell_.Ring(options_.group, *slot);
  by_slot_[slot->index] = id;
  jobs_.emplace(id, std::move(job));
  return true;
}

void Intake::PlaceWaiting() {
  while (joined() && !waiting_.empty()) {
    const Waiting& first = waiting_.front();
    if (MonotonicUs() >= first.deadline_us)
      SendFailure(first.id, Code::kDeadlineExceeded);
    else if (!Place(first.id, first.deadline_us, first.priority, first.bytes))
      return;
    if (waiting_.empty()) return;  // the link was lost with that message
    waiting_bytes_ -= first.bytes.size();
    waiting_.pop_front();
  }
}

void Intake::LookAtNotices() {
  if (!notices_.Any(me_)) return;
  noticed_.clear();
  notices_.Take(me_, noticed_);
  for (const uint32_t slot : noticed_) LookAt(by_slot_[slot]);
}

// Sends the job's end, if it has ended. `id` may be that of a job which is over.
void Intake::LookAt(uint64_t id) {
  const auto at = jobs_.find(id);
  if (at == jobs_.end()) return;
  const Job& job = *at->second;
  const SlotOutcome now = arena_.slots().Look(job.slot);
  switch (now.state) {
    case SlotState::kReady:
    case SlotState::kRunning:
      return;
    case SlotState::
        kReturned:  // the group died; the router gives all of its jobs back when it hears that
      return SendStatus(LinkGroupState::kAway);
    case SlotState::kDone:
      Send(LinkResult{id, Code::kOk, std::max<int64_t>(job.view.queue_us(), 0),
                      std::max<int64_t>(job.view.pass_us(), 0), job.view.result_bytes()});
      break;
    case SlotState::kFailed:
      SendFailure(id, now.code);
      break;
    default:
      SendFailure(id, Code::kInternal);
  }
  jobs_.erase(id);
}

LinkGroupState Intake::State() const {
  if (draining_) return LinkGroupState::kDraining;
  return arena_.board().State(options_.group) == GroupState::kReady ? LinkGroupState::kReady
                                                                    : LinkGroupState::kAway;
}

void Intake::SendStatus(LinkGroupState state) {
  next_status_us_ = MonotonicUs() + options_.link_timeout_us / kBeats;
  const GroupLoad load = arena_.board().Read(options_.group);
  // Figures of different moments may contradict each other.
  const uint32_t blocks = load.kv.blocks;
  const bool known = load.rate.tokens_per_second > 0 && load.rate.tokens_a_pass > 0;
  Send(LinkStatus{state, load.max_model_len, known ? load.rate.tokens_per_second : 0,
                  known ? load.rate.tokens_a_pass : 0, std::min(load.kv.blocks_in_use, blocks),
                  std::min(load.kv.blocks_held, blocks), blocks, load.kv.block_bytes,
                  load.total_tokens, load.total_batches, load.total_busy_us});
  told_ = state;
  if (state == LinkGroupState::kAway) Forget();
}

void Intake::Send(const LinkBody& body) {
  if (connection_ == nullptr) return;
  WriteLinkMessage({session_, body}, sent_);
  if (!connection_->Send(sent_)) Break("its connection is gone");
}

void Intake::Break(const std::string& why) {
  if (std::exchange(last_trouble_, why) != why && !why.empty())
    SYSONE_WARNING("the router at %s: %s; trying again", options_.router_address.c_str(),
                   why.c_str());
  connection_.reset();
  session_ = 0;
  told_ = LinkGroupState::kAway;
  next_connect_us_ = MonotonicUs() + kReconnectUs;
  Forget();
}

void Intake::Forget() {
  jobs_.clear();
  waiting_.clear();
  waiting_bytes_ = 0;
}

Status RunIntake(const ServeOptions& options) {
  SYSONE_ASSIGN_OR_RETURN(Arena arena, Arena::Attach(options.instance_name, kAttachWaitUs));
  SYSONE_RETURN_IF_ERROR(
      arena.Register(ProcessRole::kIntake, static_cast<uint32_t>(options.role_index)));
  const RouterWatch watch(arena, options.instance_name, options.run_dir);
  const Heartbeat heartbeat(arena);
  IntakeOptions intake_options;
  intake_options.group = GroupId{static_cast<uint32_t>(options.role_index)};
  intake_options.router_address = options.router_address;
  intake_options.link_timeout_us = static_cast<int64_t>(options.link_timeout_s * 1e6);
  if (!options.curve_keys.empty()) {
    SYSONE_ASSIGN_OR_RETURN(intake_options.keys, ReadLinkKeys(options.curve_keys, LinkEnd::kHost));
  }
  {
    SYSONE_ASSIGN_OR_RETURN(const ModelWeights weights, OpenModelWeights(options.model_path));
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof host - 1);
    intake_options.hello = {static_cast<uint32_t>(weights.config.vocab),
                            SysoneVersion(),
                            weights.fingerprint,
                            options.dtype,
                            host,
                            Index(intake_options.group)};
  }
  SYSONE_ASSIGN_OR_RETURN(std::unique_ptr<Doorbell> socket, Doorbell::Create(options.run_dir));
  const auto doorbell = MakeGroupDoorbell(arena, std::move(socket));
  SYSONE_ASSIGN_OR_RETURN(WakeSocket wake, WakeSocket::Bind(options.run_dir, arena.self()));
  Intake intake(arena, *doorbell, wake, std::move(intake_options));
  arena.lease().SetPhase(ProcessPhase::kReady);
  std::optional<int64_t> end_us;
  while (!intake.done() && MonotonicUs() < end_us.value_or(INT64_MAX)) {
    if (heartbeat.stop().load(std::memory_order_relaxed) && !end_us) {
      arena.lease().SetPhase(ProcessPhase::kDraining);
      end_us = MonotonicUs() + static_cast<int64_t>(options.shutdown_timeout_s * 1e6);
      intake.Drain();
    }
    intake.Step();
  }
  arena.lease().SetPhase(ProcessPhase::kExiting);
  return {};
}

}  // namespace sysone
