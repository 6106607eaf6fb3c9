// Which group takes a job, and whether it may be accepted at all: pure functions of a board
// snapshot.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/status.h"
#include "shm_arena/ids.h"
#include "shm_arena/load_board.h"

namespace sysone {

// Groups whose expected finish is within this share of the best one's, or within this many tokens,
// count as equal and take turns: differences below one small prompt are noise of the snapshot.
inline constexpr double kNearEqualShare = 0.05;
inline constexpr double kNearEqualTokens = 64;

// A group at least this share as fast as the fastest counts as equally fast. Measured rates of equal groups differ by what
// else the machine does and by how full their passes happened to be; following that noise would tilt the load, while a group
// that is really slower by less than this costs a job less than a third of its time.
inline constexpr double kEqualRateShare = 0.75;

struct JobDemand {
  int64_t tokens = 0;             // shared prefix once + all suffixes
  uint32_t longest_sequence = 0;  // tokens of the longest sequence, prefix included
  // By group: how many of `tokens` it holds already (PrefixBoard), and need not compute.
  std::array<uint32_t, kMaxGroups> held{};

  // What the job adds to the group's outstanding tokens; a read-out alone counts as one.
  int64_t Work(GroupId group) const { return std::max<int64_t>(tokens - held[Index(group)], 1); }
};

// The ready group that would finish the job first, in time: (outstanding + the job's work there) ÷ rate.
//
// * A group of unknown rate counts with the mean of the known ones.
// * A group whose passes are n times smaller than the fastest one's counts as √n times faster than it was measured, up to the
//   fastest. A pass costs something whatever its size, so a group with less to do has smaller passes and computes fewer tokens
//   a second; taken at its word it would get even less, and equal groups would drift apart for good. How much of a smaller
//   pass's slowness is its size lies between nothing and a factor of n; half of that (on a logarithmic scale) shrinks every
//   accidental difference of equal groups, and costs really unequal ones little.
//
// Among near-equals, the one that holds most of the job; `rotation` (any growing number) picks among those that hold alike; `excluded` (a group that just lost this job) is taken only when no
// other can. nullopt: no ready group can take the job.
std::optional<GroupId> PlaceJob(const BoardSnapshot& board, const JobDemand& job, uint32_t rotation,
                                GroupId excluded = GroupId::kNone);

// Expected time until a job placed now would start, in microseconds; 0 when the rate is not known.
int64_t ExpectedWaitUs(const GroupLoad& load);

struct AdmissionLimits {
  int64_t max_queued_requests = 0;  // outstanding jobs of all groups; 0 = no bound
  int64_t max_queued_tokens = 0;    // outstanding tokens of all groups; 0 = no bound
};

// kUnavailable when a bound is reached, or when the wait for `group` would pass `deadline_us`
// (MonotonicUs; 0 = none).
struct AdmissionVerdict {
  Status status;
  int64_t retry_after_us = 0;        // how long until there is room, estimated; > 0 when refused
  bool refused_by_deadline = false;  // else by a bound
};
AdmissionVerdict AdmitJob(const BoardSnapshot& board, GroupId group, const JobDemand& job,
                          int64_t now_us, int64_t deadline_us, const AdmissionLimits& limits);

}  // namespace sysone
