// What placement is compared with: groups in turn, or one at random, whatever they have to do. Linked into an API server in
// place of shm_arena/placement.cc; admits every job.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "shm_arena/placement.h"

namespace sysone {

std::optional<GroupId> PlaceJob(const BoardSnapshot& board, const JobDemand&, uint32_t rotation,
                                GroupId) {
  std::vector<GroupId> ready;
  for (uint32_t g = 0; g < board.group_count; ++g)
    if (board.groups[g].state == GroupState::kReady) ready.push_back(static_cast<GroupId>(g));
  if (ready.empty()) return std::nullopt;
  // A multiplicative hash of the count is as good as chance here, and the same in every run.
  const uint32_t turn = SYSONE_BENCH_RANDOM ? rotation * 2654435761u >> 16 : rotation;
  return ready[turn % ready.size()];
}

int64_t ExpectedWaitUs(const GroupLoad&) { return 0; }

AdmissionVerdict AdmitJob(const BoardSnapshot&, GroupId, const JobDemand&, int64_t, int64_t,
                          const AdmissionLimits&) {
  return {};
}

}  // namespace sysone
