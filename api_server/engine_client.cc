// SPDX-License-Identifier: Apache-2.0
#include "api_server/engine_client.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "shm_arena/job_layout.h"

namespace sysone {
namespace {

// How often jobs are looked at without a notice: whether their clients are still there, their deadlines have passed, or a
// notice was lost with its sender.
constexpr int64_t kSweepUs = 50'000;
// How often a job that lost its group looks for another while there is none.
constexpr int64_t kNoGroupSweepUs = 5'000;
// A client that is told to come back without an estimate waits this long.
constexpr int64_t kDefaultRetryUs = 1'000'000;

JobShape ShapeOf(const DecisionJobPlan& plan) {
  JobShape shape;
  shape.prefix_tokens = static_cast<int32_t>(plan.prefix_len);
  shape.suffix_tokens = static_cast<int32_t>(plan.tokens.size() - plan.prefix_len);
  shape.sequence_count = static_cast<int32_t>(plan.questions.size());
  for (const QuestionPlan& question : plan.questions)
    shape.label_count += static_cast<int32_t>(question.label_ids.size());
  return shape;
}

JobDemand DemandOf(const DecisionJobPlan& plan) {
  JobDemand demand;
  demand.tokens = static_cast<int64_t>(plan.tokens.size());
  for (const QuestionPlan& question : plan.questions)
    demand.longest_sequence = std::max(demand.longest_sequence, question.prompt_tokens);
  return demand;
}

JobRefusal TakenAway() { return {Error(Code::kInternal, "the slot was taken from its owner")}; }

}  // namespace

// From its slot's claim to its end.
struct EngineClient::Job {
  Job(SlotPool& pool_, SlotHandle slot_) : pool(pool_), slot(slot_) {}
  ~Job() { pool.Release(slot); }  // on every way out

  SlotPool& pool;
  const SlotHandle slot;
  JobDemand demand;
  JobMarks marks;
  uint32_t used_bytes = 0;
  size_t questions = 0;
  bool full_head = false;
  int32_t priority = 0;
  int64_t deadline_us = 0;
  std::function<bool()> client_gone;
  Done done;
  GroupId lost = GroupId::kNone;        // the group that died with the job last
  GroupId group = GroupId::kNone;       // kNone: waits for one
  std::optional<OutstandingLoad> load;  // the board counts the job while it is placed
};

struct EngineClient::Ended {
  std::unique_ptr<Job> job;
  Outcome outcome;
};

EngineClient::EngineClient(Arena& arena, Doorbell& doorbell, WakeSocket& socket,
                           const AdmissionLimits& limits, bool prefix_caching)
    : arena_(arena),
      doorbell_(doorbell),
      socket_(socket),
      limits_(limits),
      prefix_caching_(prefix_caching),
      notices_(arena.notices()),
      me_(NoticeReceiver::Of(arena.self())),
      jobs_(arena.slots().slot_count()) {}

EngineClient::~EngineClient() = default;

void EngineClient::Start(const JobRequest& request, Done done) {
  const JobDemand demand = DemandOf(request.plan);
  const JobShape shape = ShapeOf(request.plan);
  JobMarks marks = MarksOf(request);
  auto accepted = Accept(request, marks, demand, JobBytes(shape));
  if (auto* refusal = std::get_if<JobRefusal>(&accepted)) return done(std::move(*refusal));
  auto job = std::make_unique<Job>(arena_.slots(), std::get<SlotHandle>(accepted));
  if (Status status = WriteJob(job->slot, request, shape, &job->used_bytes); !status.ok())
    return done(JobRefusal{status});
  job->demand = demand;
  job->marks = std::move(marks);
  job->questions = request.plan.questions.size();
  job->full_head = request.full_head;
  job->priority = request.priority;
  job->deadline_us = request.deadline_us;
  job->client_gone = request.client_gone;
  job->done = std::move(done);
  std::unique_ptr<Job> failed;
  {
    const std::lock_guard lock(mutex_);
    // The first job starts the sweeps; a deadline before the next one brings that forward.
    if (in_flight_.fetch_add(1, std::memory_order_relaxed) == 0)
      next_sweep_us_ = MonotonicUs() + kSweepUs;
    next_sweep_us_ = std::min(next_sweep_us_, request.deadline_us);
    std::unique_ptr<Job>& place = jobs_[job->slot.index];
    place = std::move(job);
    ++unplaced_;
    if (!Place(*place)) {
      failed = std::move(place);
      --unplaced_;
      in_flight_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  if (failed) failed->done(TakenAway());
}

JobMarks EngineClient::MarksOf(const JobRequest& request) const {
  if (!prefix_caching_) return {};
  const DecisionJobPlan& plan = request.plan;
  const std::span<const TokenId> tokens(plan.tokens);
  JobMarks marks(request.cache_salt_hash, tokens.first(plan.prefix_len));
  for (const QuestionPlan& question : plan.questions)
    marks.Add(tokens.subspan(question.suffix_begin, question.suffix_end - question.suffix_begin));
  return marks;
}

void EngineClient::FindHeld(const BoardSnapshot& board, const JobMarks& marks,
                            JobDemand& demand) const {
  const PrefixBoard prefixes = arena_.prefixes();
  for (uint32_t g = 0; g < board.group_count; ++g)
    if (board.groups[g].state == GroupState::kReady)
      demand.held[g] = prefixes.Held(GroupId{g}, marks);
}

std::variant<SlotHandle, JobRefusal> EngineClient::Accept(const JobRequest& request,
                                                          const JobMarks& marks, JobDemand demand,
                                                          size_t bytes) {
  const BoardSnapshot board = arena_.board().Snapshot();
  FindHeld(board, marks, demand);
  const auto group = PlaceJob(board, demand, rotation_.load(std::memory_order_relaxed));
  if (!group)
    return JobRefusal{Error(Code::kUnavailable, "no worker group is ready"), kDefaultRetryUs};
  const AdmissionVerdict verdict =
      AdmitJob(board, *group, demand, MonotonicUs(), request.deadline_us, limits_);
  if (!verdict.status.ok()) {
    arena_.metrics().Add(verdict.refused_by_deadline ? Counter::kAdmissionRejectedDeadline
                                                     : Counter::kAdmissionRejectedQueue);
    return JobRefusal{verdict.status, verdict.retry_after_us};
  }
  auto slot = arena_.slots().Claim(arena_.self(), bytes);
  if (!slot.ok()) return JobRefusal{slot.status(), kDefaultRetryUs};
  return *slot;
}

Status EngineClient::WriteJob(SlotHandle slot, const JobRequest& request, const JobShape& shape,
                              uint32_t* used_bytes) {
  const DecisionJobPlan& plan = request.plan;
  SYSONE_ASSIGN_OR_RETURN(
      JobWriter writer,
      JobWriter::Begin(arena_.slots().payload(slot), shape,
                       request.full_head ? kJobWantsDiagnostics : 0, request.cache_salt_hash));
  const std::span<const TokenId> tokens(plan.tokens);
  writer.SetPrefix(tokens.first(plan.prefix_len));
  for (const QuestionPlan& question : plan.questions)
    writer.AddSequence(
        tokens.subspan(question.suffix_begin, question.suffix_end - question.suffix_begin),
        question.label_ids);
  *used_bytes = static_cast<uint32_t>(writer.Finish());
  return {};
}

// Publishes the job to a group, if there is one; else it stays unplaced. False: the slot is not ours any more.
bool EngineClient::Place(Job& job) {
  const uint32_t rotation = rotation_.fetch_add(1, std::memory_order_relaxed);
  const BoardSnapshot board = arena_.board().Snapshot();
  FindHeld(board, job.marks, job.demand);
  const auto group = PlaceJob(board, job.demand, rotation, job.lost);
  if (!group) {
    next_sweep_us_ = std::min(next_sweep_us_, MonotonicUs() + kNoGroupSweepUs);
    return true;
  }
  job.load.emplace(arena_.board(), arena_.self(), *group, job.demand.Work(*group));
  // Before the publish: the next job that begins like this one should find it.
  arena_.prefixes().Sent(*group, job.marks);
  const PublishOptions publish{MonotonicUs(), job.deadline_us, job.priority, job.used_bytes};
  if (!arena_.slots().Publish(job.slot, *group, publish)) return false;
  job.group = *group;
  --unplaced_;
  doorbell_.Ring(*group, job.slot);
  return true;
}

std::optional<EngineClient::Outcome> EngineClient::StillWanted(const Job& job) const {
  if (MonotonicUs() >= job.deadline_us)
    return JobRefusal{Error(Code::kDeadlineExceeded,
                            "the request was accepted, but not answered before its deadline")};
  if (job.client_gone && job.client_gone())
    return JobRefusal{Error(Code::kCancelled, "the client left")};
  return std::nullopt;
}

// How the job ended, if it did.
std::optional<EngineClient::Outcome> EngineClient::Look(Job& job) {
  const SlotOutcome now = arena_.slots().Look(job.slot);
  switch (now.state) {
    case SlotState::kDone: {
      auto result = ReadResult(job);
      if (!result.ok()) return JobRefusal{result.status()};
      return *std::move(result);
    }
    case SlotState::kFailed:
      if (now.code == Code::kDeadlineExceeded)
        return JobRefusal{
            Error(now.code, "the request was accepted, but not answered before its deadline")};
      return JobRefusal{Error(now.code, "the worker failed the job: %s", CodeName(now.code))};
    case SlotState::kReturned:  // the group died with the job, which still lies in the slot
      job.lost = job.group;
      job.group = GroupId::kNone;
      job.load.reset();
      ++unplaced_;
      if (!arena_.slots().TakeBack(job.slot) || !Place(job)) return TakenAway();
      return std::nullopt;
    case SlotState::kClaimed:
      if (!Place(job)) return TakenAway();
      return std::nullopt;
    case SlotState::kReady:
    case SlotState::kRunning:
      return std::nullopt;
    default:
      return TakenAway();
  }
}

void EngineClient::LookAt(uint32_t slot, bool sweep, std::vector<Ended>& ended) {
  std::unique_ptr<Job>& job = jobs_[slot];
  if (job == nullptr) return;  // a notice of the slot's last job
  std::optional<Outcome> outcome = Look(*job);
  if (!outcome && sweep) outcome = StillWanted(*job);
  if (!outcome) {
    next_sweep_us_ = std::min(next_sweep_us_, job->deadline_us);
    return;
  }
  if (job->group == GroupId::kNone) --unplaced_;
  in_flight_.fetch_sub(1, std::memory_order_relaxed);
  ended.push_back({std::move(job), *std::move(outcome)});
}

int64_t EngineClient::Poll() {
  std::vector<Ended> ended;
  int64_t next_us = INT64_MAX;
  {
    const std::lock_guard lock(mutex_);
    if (notices_.Any(me_)) {
      noticed_.clear();
      notices_.Take(me_, noticed_);
      for (const uint32_t slot : noticed_) LookAt(slot, false, ended);
    }
    if (in_flight() > 0 && MonotonicUs() >= next_sweep_us_) {
      next_sweep_us_ = MonotonicUs() + (unplaced_ > 0 ? kNoGroupSweepUs : kSweepUs);
      for (uint32_t slot = 0; slot < jobs_.size(); ++slot) LookAt(slot, true, ended);
    }
    if (in_flight() > 0) next_us = next_sweep_us_;
  }
  for (Ended& end : ended) {
    const Done done = std::move(end.job->done);
    end.job.reset();  // the slot and the place in the queue are free before the client hears of it
    done(std::move(end.outcome));
  }
  return next_us;
}

Result<JobResult> EngineClient::ReadResult(const Job& job) {
  SYSONE_ASSIGN_OR_RETURN(const JobView view,
                          JobView::Open(arena_.slots().payload(job.slot), INT32_MAX));
  JobResult result;
  result.queue_us = view.queue_us();
  result.pass_us = view.pass_us();
  result.questions.resize(job.questions);
  for (size_t i = 0; i < result.questions.size(); ++i) {
    const int32_t sequence = static_cast<int32_t>(i);
    const std::span<const float> logits = view.label_logits(sequence);
    const SequenceResult& read = view.result(sequence);
    result.questions[i].label_logits.assign(logits.begin(), logits.end());
    if (job.full_head)
      result.questions[i].full_head = FullHead{read.log_sum_exp, read.argmax_token};
    result.cached_tokens += static_cast<uint64_t>(std::max(read.cached_tokens, 0));
  }
  return result;
}

}  // namespace sysone
