// Where the arena's bytes come from: a named POSIX segment, or plain memory for tests. The only
// file that knows Boost.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace sysone {

// A mapping that lives as long as this object. The keeper and the router that it forks also hold the instance lock (one flock
// on the segment, released by the kernel when both are dead); the keeper removes the name when it is destroyed.
class Segment {
 public:
  // Creates /sysone.<instance>, every page backed. kUnavailable when another router lives or
  // processes of a dead one do (adopt them instead); kOutOfMemory when /dev/shm is too small. A
  // segment that nobody uses is replaced.
  static Result<std::unique_ptr<Segment>> Create(const std::string& instance, uint64_t bytes);
  // Takes over the segment that a dead keeper and its router left, to end who still uses it: kNotFound when there
  // is none, kUnavailable when one of them lives, kCorrupt when the segment is not an arena of this build.
  static Result<std::unique_ptr<Segment>> Adopt(const std::string& instance);
  // Other processes. Waits up to `wait_us` for the segment and its magic word; kUnavailable after
  // that.
  static Result<std::unique_ptr<Segment>> Attach(const std::string& instance, int64_t wait_us);
  // Zeroed, page-aligned memory of this process and its forked children (tests).
  static std::unique_ptr<Segment> Plain(uint64_t bytes);

  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  // Leaves the name in place at destruction.
  virtual void KeepName() {}

 protected:
  Segment() = default;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
};

// kInvalidArgument unless 1–64 of [A-Za-z0-9_-].
Status CheckInstanceName(const std::string& instance);
// The name in /dev/shm, without the slash.
std::string SegmentName(const std::string& instance);

}  // namespace sysone
