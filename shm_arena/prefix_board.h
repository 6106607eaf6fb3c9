// What each group is thought to hold of the prompts that were sent to it, so that a prompt that begins like an earlier one goes
// where its beginning need not be computed again. A guess: groups forget what they need room for without telling it here. Only
// placement rests on it, no answer does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "shm_arena/ids.h"

namespace sysone {

// A prompt is marked behind every so many tokens, and at its end. What two prompts share beyond the last mark is not seen.
inline constexpr uint32_t kPrefixStep = 64;
// A group's marks; a new one takes the place of any that has the same hash modulo this.
inline constexpr uint32_t kPrefixMarks = 4096;

// A line of marks a group, each the hash of a prompt's salt and tokens up to its place; 0: none. As it lies in the arena.
struct alignas(128) PrefixRegion {
  std::atomic<uint64_t> marks[kMaxGroups][kPrefixMarks];
};

// The marks of one job: a shared prefix and what each question adds. Values; no thread of its own.
class JobMarks {
 public:
  JobMarks() = default;  // of a job whose tokens are not kept: nobody holds any
  // Prompts of different salts share nothing. `prefix` may be empty.
  JobMarks(uint64_t cache_salt_hash, std::span<const int32_t> prefix);
  // A prompt: the prefix and `suffix`.
  void Add(std::span<const int32_t> suffix);

 private:
  friend class PrefixBoard;
  struct Mark {
    uint64_t hash;
    uint32_t tokens;  // of its part up to here
  };
  struct Chain {
    uint64_t hash = 0;
    uint32_t position = 0;
  };
  Chain Walk(Chain chain, std::span<const int32_t> tokens);

  std::vector<Mark> marks_;      // the prefix's, then prompt after prompt, each from front to back
  std::vector<uint32_t> parts_;  // where each part's marks end
  Chain prefix_;
};

// A view; any thread of any process.
class PrefixBoard {
 public:
  explicit PrefixBoard(PrefixRegion* region) : region_(region) {}

  // How many of the job's tokens the group is thought to hold; at most as many as were given to JobMarks.
  uint32_t Held(GroupId group, const JobMarks& job) const;
  // The job goes to the group.
  void Sent(GroupId group, const JobMarks& job);
  // The group starts anew, and holds nothing.
  void Forget(GroupId group);

 private:
  PrefixRegion* region_;
};

}  // namespace sysone
