// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/prefix_board.h"

#include <algorithm>
#include <bit>

namespace sysone {
namespace {

// All relaxed: a mark that is seen late or lost costs a computation, nothing else.
constexpr auto kRelaxed = std::memory_order_relaxed;

constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio

}  // namespace

JobMarks::JobMarks(uint64_t cache_salt_hash, std::span<const int32_t> prefix) {
  prefix_ = Walk({cache_salt_hash ^ kOdd, 0}, prefix);
}

void JobMarks::Add(std::span<const int32_t> suffix) { Walk(prefix_, suffix); }

JobMarks::Chain JobMarks::Walk(Chain chain, std::span<const int32_t> tokens) {
  uint32_t count = 0;
  for (const int32_t token : tokens) {
    chain.hash = std::rotl(chain.hash ^ static_cast<uint32_t>(token), 29) * kOdd;
    ++chain.position;
    ++count;
    if (chain.position % kPrefixStep == 0 || count == tokens.size())
      marks_.push_back({std::max<uint64_t>(chain.hash, 1), count});
  }
  parts_.push_back(static_cast<uint32_t>(marks_.size()));
  return chain;
}

uint32_t PrefixBoard::Held(GroupId group, const JobMarks& job) const {
  const std::atomic<uint64_t>* const marks = region_->marks[Index(group)];
  const auto longest = [&](uint32_t begin, uint32_t end) -> uint32_t {
    while (end > begin) {
      const JobMarks::Mark& mark = job.marks_[--end];
      if (marks[mark.hash % kPrefixMarks].load(kRelaxed) == mark.hash) return mark.tokens;
    }
    return 0;
  };
  if (job.parts_.empty()) return 0;
  const uint32_t prefix_end = job.parts_.front();
  uint32_t held = 0;
  for (size_t part = 1; part < job.parts_.size(); ++part)
    held += longest(job.parts_[part - 1], job.parts_[part]);
  // Who holds a part behind the prefix holds the prefix.
  const bool whole_prefix = held > 0 && prefix_end > 0;
  return held + (whole_prefix ? job.marks_[prefix_end - 1].tokens : longest(0, prefix_end));
}

void PrefixBoard::Sent(GroupId group, const JobMarks& job) {
  for (const JobMarks::Mark& mark : job.marks_)
    region_->marks[Index(group)][mark.hash % kPrefixMarks].store(mark.hash, kRelaxed);
}

void PrefixBoard::Forget(GroupId group) {
  for (std::atomic<uint64_t>& mark : region_->marks[Index(group)]) mark.store(0, kRelaxed);
}

}  // namespace sysone
