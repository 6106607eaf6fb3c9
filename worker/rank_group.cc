// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_group.h"

namespace sysone {
namespace {

// Steps, as a collective of devices names them.
constexpr char kComputing[] = "a pass of rows";
constexpr char kReading[] = "reading out states";

void CompareMessages(Collective& ranks, uint64_t step, std::span<const std::byte> message) {
  // The step is each rank's own count: a message that came twice or not at all shows, too.
  CheckAgreement(ranks, BatchFingerprint(message) ^ step, "the batch of a step");
}

}  // namespace

void RankLeader::Compute(const Pass& pass, std::span<float> states) {
  Tell(BatchKind::kRows, pass.batch_rows(), {}, {});
  ranks_.BeginStep(steps_, kComputing, pass.rows());
  decoder_.Compute(pass.batch_rows(), states);
  ranks_.EndStep();
}

void RankLeader::ReadOut(const Pass& pass, std::span<const float> states,
                         std::span<float> label_logits, std::span<HeadSummary> summaries) {
  const size_t floats = static_cast<size_t>(pass.states()) * static_cast<size_t>(hidden());
  Tell(BatchKind::kReads, {}, pass.batch_reads(), states.first(floats));
  ranks_.BeginStep(steps_, kReading, pass.states());
  decoder_.ReadOut(pass.batch_reads(), states, label_logits, summaries);
  ranks_.EndStep();
}

void RankLeader::End() { Tell(BatchKind::kEnd, {}, {}, {}); }

void RankLeader::Tell(BatchKind kind, const BatchRows& rows, const BatchReads& reads,
                      std::span<const float> states) {
  WriteBatch({kind, ++steps_, rows, reads, states}, message_);
  ranks_.Broadcast(message_);
  CompareMessages(ranks_, steps_, message_);
}

void FollowLeader(Decoder& decoder, Collective& ranks) {
  std::vector<std::byte> bytes;
  std::vector<float> states, logits;
  std::vector<HeadSummary> summaries;
  for (uint64_t step = 1;; ++step) {
    ranks.Broadcast(bytes);
    CompareMessages(ranks, step, bytes);
    const auto message = ReadBatch(bytes);
    SYSONE_CHECK(message.ok(), "step %llu: %s", static_cast<unsigned long long>(step),
                 message.status().message().c_str());
    SYSONE_CHECK(message->number == step, "step %llu came as number %llu",
                 static_cast<unsigned long long>(message->number),
                 static_cast<unsigned long long>(step));
    switch (message->kind) {
      case BatchKind::kRows:
        states.resize(message->rows.read_rows.size() * static_cast<size_t>(decoder.hidden()));
        ranks.BeginStep(step, kComputing, message->rows.plan.rows());
        decoder.Compute(message->rows, states);
        ranks.EndStep();
        break;
      case BatchKind::kReads:
        logits.resize(message->reads.label_ids.size());
        summaries.resize(static_cast<size_t>(message->reads.states));
        ranks.BeginStep(step, kReading, message->reads.states);
        decoder.ReadOut(message->reads, message->states, logits, summaries);
        ranks.EndStep();
        break;
      case BatchKind::kEnd:
        return;
    }
  }
}

}  // namespace sysone
