// SPDX-License-Identifier: Apache-2.0
#include "api_server/engine_client.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "shm_arena/job_layout.h"

namespace sysone {
namespace {

// How often a waiting thread looks whether its client is still there.
constexpr int64_t kClientCheckUs = 50'000;
// How often a job that lost its group looks for another while there is none.
constexpr int64_t kNoGroupPollUs = 5'000;
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

// Releases the slot on every way out.
class ClaimedSlot {
 public:
  ClaimedSlot(SlotPool& pool, SlotHandle slot) : pool_(pool), slot_(slot) {}
  ~ClaimedSlot() { pool_.Release(slot_); }
  ClaimedSlot(const ClaimedSlot&) = delete;
  ClaimedSlot& operator=(const ClaimedSlot&) = delete;

 private:
  SlotPool& pool_;
  const SlotHandle slot_;
};

}  // namespace

// The board counts the job for as long as this lives.
struct EngineClient::Placed {
  GroupId group;
  OutstandingLoad load;
};

std::variant<JobResult, JobRefusal> EngineClient::Run(const JobRequest& request) {
  const JobDemand demand = DemandOf(request.plan);
  auto accepted = Accept(request, demand);
  if (auto* refusal = std::get_if<JobRefusal>(&accepted)) return std::move(*refusal);
  const SlotHandle slot = std::get<SlotHandle>(accepted);
  const ClaimedSlot release(arena_.slots(), slot);

  uint32_t used_bytes = 0;
  if (Status status = WriteJob(slot, request, ShapeOf(request.plan), &used_bytes); !status.ok())
    return JobRefusal{status};
  GroupId lost = GroupId::kNone;
  for (;;) {
    auto placed = Place(slot, request, demand, used_bytes, lost);
    if (!placed.ok()) return JobRefusal{placed.status()};
    SlotState state;
    if (Status status = AwaitEnd(slot, request, &state); !status.ok()) return JobRefusal{status};
    if (state == SlotState::kDone) {
      auto result = ReadResult(slot, request);
      if (!result.ok()) return JobRefusal{result.status()};
      return std::move(result).value();
    }
    // Returned: the group died with the job, which still lies in the slot.
    if (!arena_.slots().TakeBack(slot))
      return JobRefusal{Error(Code::kInternal, "the slot was taken from its owner")};
    lost = placed->group;
  }
}

std::variant<SlotHandle, JobRefusal> EngineClient::Accept(const JobRequest& request,
                                                          const JobDemand& demand) {
  const BoardSnapshot board = arena_.board().Snapshot();
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
  auto slot = arena_.slots().Claim(arena_.self(), JobBytes(ShapeOf(request.plan)));
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

Result<EngineClient::Placed> EngineClient::Place(SlotHandle slot, const JobRequest& request,
                                                 const JobDemand& demand, uint32_t used_bytes,
                                                 GroupId excluded) {
  for (;;) {
    const uint32_t rotation = rotation_.fetch_add(1, std::memory_order_relaxed);
    if (const auto group = PlaceJob(arena_.board().Snapshot(), demand, rotation, excluded)) {
      Placed placed{*group, OutstandingLoad(arena_.board(), arena_.self(), *group, demand.tokens)};
      const PublishOptions publish{MonotonicUs(), request.deadline_us, request.priority,
                                   used_bytes};
      if (!arena_.slots().Publish(slot, *group, publish))
        return Error(Code::kInternal, "the slot was taken from its owner");
      doorbell_.Ring(*group, slot);
      return placed;
    }
    SYSONE_RETURN_IF_ERROR(StillWanted(request));
    std::this_thread::sleep_for(std::chrono::microseconds(kNoGroupPollUs));
  }
}

Status EngineClient::StillWanted(const JobRequest& request) const {
  if (MonotonicUs() >= request.deadline_us)
    return Error(Code::kDeadlineExceeded,
                 "the request was accepted, but not answered before its deadline");
  if (request.client_gone && request.client_gone())
    return Error(Code::kCancelled, "the client left");
  return {};
}

Status EngineClient::AwaitEnd(SlotHandle slot, const JobRequest& request, SlotState* state) {
  for (;;) {
    const int64_t until_us = std::min(request.deadline_us, MonotonicUs() + kClientCheckUs);
    const WaitResult wait = arena_.slots().Wait(slot, until_us);
    switch (wait.state) {
      case SlotState::kDone:
      case SlotState::kReturned:
        *state = wait.state;
        return {};
      case SlotState::kFailed:
        if (wait.code == Code::kDeadlineExceeded)
          return Error(wait.code, "the request was accepted, but not answered before its deadline");
        return Error(wait.code, "the worker failed the job: %s", CodeName(wait.code));
      case SlotState::kReady:
      case SlotState::kRunning:
        break;
      default:
        return Error(Code::kInternal, "the slot was taken from its owner");
    }
    SYSONE_RETURN_IF_ERROR(StillWanted(request));
  }
}

Result<JobResult> EngineClient::ReadResult(SlotHandle slot, const JobRequest& request) {
  SYSONE_ASSIGN_OR_RETURN(const JobView view,
                          JobView::Open(arena_.slots().payload(slot), INT32_MAX));
  JobResult result;
  result.queue_us = view.queue_us();
  result.pass_us = view.pass_us();
  result.questions.resize(request.plan.questions.size());
  for (size_t i = 0; i < result.questions.size(); ++i) {
    const int32_t sequence = static_cast<int32_t>(i);
    const std::span<const float> logits = view.label_logits(sequence);
    const SequenceResult& read = view.result(sequence);
    result.questions[i].label_logits.assign(logits.begin(), logits.end());
    if (request.full_head)
      result.questions[i].full_head = FullHead{read.log_sum_exp, read.argmax_token};
    result.cached_tokens += static_cast<uint64_t>(std::max(read.cached_tokens, 0));
  }
  return result;
}

}  // namespace sysone
