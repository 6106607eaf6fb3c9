// SPDX-License-Identifier: Apache-2.0
#include "worker/stand_in.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace sysone {
namespace {

// A lost notice costs its job at most this much; a job that nobody waits for any more is found as soon.
constexpr int64_t kSweepUs = 50'000;
// Beats within a time-out.
constexpr int64_t kBeats = 6;
// Of a job without a deadline.
constexpr int64_t kNoDeadlineUs = int64_t{365} * 86'400 * 1'000'000;

}  // namespace

StandIn::StandIn(Arena& arena, ProcessLease line, LinkListener& link, const StandInOptions& options)
    : arena_(arena),
      line_(std::move(line)),
      link_(link),
      options_(options),
      name_(Format("group %u", Index(options.group))),
      // Of an earlier life of this place a frame may still be under way.
      last_session_(static_cast<uint64_t>(MonotonicUs())) {
  line_.SetPhase(ProcessPhase::kReady);
}

void StandIn::Join(const LinkListener::Peer& peer, const LinkHello& hello, int64_t now_us) {
  SYSONE_CHECK(!joined(), "%s has a host already", name_.c_str());
  peer_ = peer;
  host_ = Format("%s, group %u", hello.host.c_str(), hello.group);
  session_ = ++last_session_;
  status_ = {};
  heard_us_ = now_us;
  next_alive_us_ = now_us;
  SYSONE_INFO("%s: %s has joined", name_.c_str(), host_.c_str());
  Send(LinkWelcome{Index(options_.group)});
}

void StandIn::Receive(std::span<const std::byte> frame, int64_t now_us) {
  LinkMessage message;
  if (const Status read = ReadLinkMessage(frame, message); !read.ok()) return Lose(read.message());
  if (message.session != session_) return;
  heard_us_ = now_us;
  std::visit([&](const auto& body) { On(body, now_us); }, message.body);
}

template <class Body>
void StandIn::On(const Body&, int64_t) {
  Lose("it sent what a host does not send");
}

void StandIn::On(const LinkStatus& status, int64_t now_us) {
  const bool ready = status.state == LinkGroupState::kReady && !draining_;
  if (ready && status.max_model_len == 0) return Lose("it is ready for no prompt at all");
  // Totals of a host's arena only grow; one that was made anew begins at zero.
  const auto grown = [](uint64_t now, uint64_t before) { return now < before ? 0 : now - before; };
  const bool first = status_.max_model_len == 0;
  arena_.board().Mirror(
      options_.group,
      {{status.tokens_per_second, status.tokens_a_pass},
       {status.kv_blocks_in_use, status.kv_blocks_held, status.kv_blocks, status.kv_block_bytes},
       first ? 0 : grown(status.total_tokens, status_.total_tokens),
       first ? 0 : grown(status.total_batches, status_.total_batches),
       first ? 0 : grown(status.total_busy_us, status_.total_busy_us)},
      now_us);
  const uint32_t max_model_len = std::max(status.max_model_len, status_.max_model_len);
  status_ = status;
  status_.max_model_len = max_model_len;
  if (ready && !ready_) {
    SYSONE_INFO("%s: ready on %s", name_.c_str(), host_.c_str());
    ready_ = true;
    arena_.board().GroupReady(options_.group, line_.id(), status.max_model_len);
  } else if (!ready && ready_) {
    ready_ = false;
    host_drains_ = status.state == LinkGroupState::kDraining;
    SYSONE_INFO(
        "%s: %s %s", name_.c_str(), host_.c_str(),
        host_drains_ ? "takes no new jobs" : "is not ready any more; its jobs go elsewhere");
    if (host_drains_)
      arena_.board().SetGroupState(options_.group, GroupState::kDraining);
    else if (status.state == LinkGroupState::kAway)
      GiveBack(GroupState::kDead);
  } else if (status.state == LinkGroupState::kDraining) {
    host_drains_ = true;
  }
}

void StandIn::On(const LinkBye&, int64_t) { Lose("it has ended the link"); }

void StandIn::On(const LinkResult& result, int64_t now_us) {
  const auto at = jobs_.find(result.id);
  if (at == jobs_.end()) return;  // its owner gave it up meanwhile
  Job job = at->second;
  if (result.code != Code::kOk) {
    jobs_.erase(at);
    arena_.slots().Fail(job.slot, result.code);
    return;
  }
  if (result.bytes.size() != job.view.result_bytes().size())
    return Lose("it sent a result of a wrong length");
  jobs_.erase(at);
  Finish(job, result, now_us);
}

// The slot is RUNNING or, if its owner left, ABANDONED; either way nobody else writes there before this is through.
void StandIn::Finish(Job& job, const LinkResult& result, int64_t now_us) {
  std::memcpy(job.view.result_bytes().data(), result.bytes.data(), result.bytes.size());
  Metrics metrics = arena_.metrics();
  for (int32_t s = 0; s < job.view.sequence_count(); ++s) {
    SequenceResult& read = job.view.result(s);
    const int32_t tokens = job.view.sequence_tokens(s);
    read.cached_tokens = std::clamp(read.cached_tokens, 0, tokens);
    read.argmax_token = std::clamp(read.argmax_token, -1, options_.vocabulary - 1);
    metrics.Add(Counter::kPrefixCacheQueries, static_cast<uint64_t>(tokens));
    metrics.Add(Counter::kPrefixCacheHits, static_cast<uint64_t>(read.cached_tokens));
  }
  // Whatever was no pass was waiting, the way there and back included.
  const int64_t all_us = std::max<int64_t>(now_us - job.publish_us, 0);
  const int64_t pass_us = std::min(result.pass_us, all_us);
  job.view.SetTimes(all_us - pass_us, pass_us);
  metrics.Observe(Histogram::kQueueTime, static_cast<uint64_t>(all_us - pass_us));
  metrics.Observe(Histogram::kPassTime, static_cast<uint64_t>(pass_us));
  arena_.board().RecordBatch(options_.group, 1, 0, 0);
  arena_.slots().Complete(job.slot);
}

void StandIn::TakeNoticed(std::span<const SlotHandle> slots, int64_t now_us) {
  for (const SlotHandle slot : slots) Take(slot, now_us);
}

void StandIn::Take(SlotHandle slot, int64_t now_us) {
  if (!TakesJobs())
    return;  // the link may be lost between two; what is not taken goes back with the next sweep
  if (!arena_.slots().Take(slot, options_.group)) return;  // a stale or repeated notice
  SlotInfo info;
  if (!arena_.slots().ReadInfo(slot, &info)) return;
  const auto view = JobView::Open(arena_.slots().payload(slot), options_.vocabulary);
  if (!view.ok() || view->job_bytes().size() > kMaxLinkBytes - 4096) {
    SYSONE_ERROR("slot %u holds no valid job: %s", slot.index,
                 view.ok() ? "it is too large for a link" : view.status().message().c_str());
    arena_.slots().Fail(slot, view.ok() ? Code::kTooLarge : Code::kInternal);
    return;
  }
  const int64_t remaining_us =
      info.deadline_us == 0 ? kNoDeadlineUs : info.deadline_us - MonotonicUs();
  if (remaining_us <= 0) {
    arena_.slots().Fail(slot, Code::kDeadlineExceeded);
    return;
  }
  const uint64_t id = ++last_id_;
  jobs_.emplace(id, Job{slot, *view, std::min(info.publish_us, now_us)});
  Send(LinkJob{id, remaining_us, info.priority, view->job_bytes()});
}

int64_t StandIn::Turn(int64_t now_us) {
  if (joined() && now_us - heard_us_ > options_.link_timeout_us)
    Lose(Format("nothing was heard of it for %.1f s",
                static_cast<double>(now_us - heard_us_) * 1e-6));
  if (now_us >= next_sweep_us_) Sweep(now_us);
  if (joined() && now_us >= next_alive_us_) {
    next_alive_us_ = now_us + options_.link_timeout_us / kBeats;
    Send(LinkAlive{});
  }
  if (joined() && jobs_.empty() && (draining_ || host_drains_)) {
    Send(LinkBye{});
    SYSONE_INFO("%s: the link to %s is ended", name_.c_str(), host_.c_str());
    EndSession();
  }
  return joined() ? std::min(next_sweep_us_, next_alive_us_) : next_sweep_us_;
}

void StandIn::Sweep(int64_t now_us) {
  next_sweep_us_ = now_us + kSweepUs;
  line_.Beat(now_us);
  if (TakesJobs()) {
    for (const SlotHandle slot : arena_.slots().ReadySlots(options_.group)) Take(slot, now_us);
  } else {
    // Placed here from a snapshot that was older than the loss.
    arena_.slots().ReturnReady(options_.group);
  }
  std::vector<uint64_t> unwanted;
  for (const auto& [id, job] : jobs_)
    if (!arena_.slots().Wanted(job.slot)) unwanted.push_back(id);
  for (const uint64_t id : unwanted) {
    const auto at = jobs_.find(id);
    if (at == jobs_.end()) return;  // the link was lost with the last message
    arena_.slots().Fail(at->second.slot, Code::kCancelled);  // frees the slot
    jobs_.erase(at);
    Send(LinkCancel{id});
  }
}

void StandIn::Drain() {
  if (std::exchange(draining_, true)) return;
  if (!joined()) return;
  arena_.board().SetGroupState(options_.group, GroupState::kDraining);
  // A job that was published by someone who still saw "ready" is taken by this last sweep, or goes back with the next one.
  Sweep(MonotonicUs());
  ready_ = false;
}

void StandIn::GiveBack(GroupState state) {
  // The state first: fewer jobs come after the last of them has gone.
  arena_.board().SetGroupState(options_.group, state);
  jobs_.clear();
  const uint32_t returned = arena_.slots().ReturnGroup(options_.group);
  if (returned > 0)
    SYSONE_INFO("%s: %u jobs given back, to be placed again", name_.c_str(), returned);
}

void StandIn::Lose(const std::string& why) {
  if (!joined()) return;
  SYSONE_WARNING("%s: %s is lost: %s", name_.c_str(), host_.c_str(), why.c_str());
  EndSession();
}

void StandIn::EndSession() {
  session_ = 0;
  ready_ = false;
  host_drains_ = false;
  GiveBack(GroupState::kDead);
}

void StandIn::Send(const LinkBody& body) {
  if (!joined()) return;
  WriteLinkMessage({session_, body}, frame_);
  if (!link_.Send(peer_, frame_)) Lose("its connection is gone");
}

}  // namespace sysone
