// The ranks of one group at work: rank 0 tells every step to the others, and all of them run it.
//
//   rank 0   Engine → RankLeader ── message ──▶ Decoder ─┐ sums, twice a layer
//   rank 1 …          FollowLeader ◀───┘  └───▶ Decoder ─┘
//
// Before a step all ranks compare what they have got: number and fingerprint of the message. A rank that has another one ends
// the group, which is better than an answer put together from two batches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "worker/batch_message.h"
#include "worker/comm/collective.h"
#include "worker/decoder.h"
#include "worker/pass_model.h"

namespace sysone {

// Rank 0: a model that the engine uses like one of a single rank. One thread; `decoder` and `ranks` outlive it.
class RankLeader final : public PassModel {
 public:
  RankLeader(Decoder& decoder, Collective& ranks) : decoder_(decoder), ranks_(ranks) {}

  int32_t hidden() const override { return decoder_.hidden(); }
  void Run(const Pass& pass, std::span<float> states, std::span<float> label_logits,
           std::span<HeadSummary> summaries) override;
  // The others' FollowLeader returns. Nothing may follow.
  void End();

 private:
  void Tell(BatchKind kind, const BatchRows& rows, const BatchReads& reads,
            std::span<const float> states);

  Decoder& decoder_;
  Collective& ranks_;
  uint64_t steps_ = 0;
  std::vector<std::byte> message_;
};

// The other ranks: runs what rank 0 tells, until it says that it is the end.
void FollowLeader(Decoder& decoder, Collective& ranks);

}  // namespace sysone
