// SPDX-License-Identifier: Apache-2.0
#include "worker/rank_group.h"

#include <algorithm>

namespace sysone {
namespace {

void CompareMessages(Collective& ranks, uint64_t step, std::span<const std::byte> message) {
  // The step is each rank's own count: a message that came twice or not at all shows, too.
  CheckAgreement(ranks, BatchFingerprint(message) ^ step, "the batch of a step");
}

}  // namespace

void RankLeader::Run(const Pass& pass, std::span<float> states, std::span<float> label_logits,
                     std::span<HeadSummary> summaries) {
  const size_t floats = static_cast<size_t>(hidden());
  const std::span<const float> stored =
      states.subspan(pass.read_rows().size() * floats, pass.stored_blocks().size() * floats);
  Tell(BatchKind::kPass, pass.batch_rows(), pass.batch_reads(), stored);
  decoder_.Run(pass, states, label_logits, summaries);
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
      case BatchKind::kPass: {
        const size_t computed =
            message->rows.read_rows.size() * static_cast<size_t>(decoder.hidden());
        states.resize(computed + message->states.size());
        std::ranges::copy(message->states, states.begin() + static_cast<ptrdiff_t>(computed));
        logits.resize(message->reads.label_ids.size());
        summaries.resize(static_cast<size_t>(message->reads.states));
        decoder.Run(message->rows, message->reads, states, logits, summaries);
        break;
      }
      case BatchKind::kEnd:
        return;
    }
  }
}

}  // namespace sysone
