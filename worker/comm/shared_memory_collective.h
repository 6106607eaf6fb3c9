// A collective for ranks on one machine: everything goes through memory that all of them map, and a rank waits for another one
// by looking at its step counter: at first without a pause, then giving way, then asleep on a futex. A sum of a few kilobytes
// takes about a microsecond more than its copies.
//
//   line of rank 0 │ line of rank 1 │ … │ message │ sum │ input of rank 0 │ input of rank 1 │ …
//
// A sum goes through in chunks: each rank copies its chunk to its input, waits for all, adds up its own slice of all inputs in
// the order of ranks, waits for all, and copies the whole sum out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/status.h"
#include "worker/comm/collective.h"

namespace sysone {

// Anonymous shared memory that other processes of this machine open by number: it has no name that could stay behind, and goes
// with the last process that maps it.
class SharedMapping {
 public:
  static Result<SharedMapping> Create(size_t bytes);
  // That of another process, by its pid and Create's fd(). Fails where /proc does not show that process to this one.
  static Result<SharedMapping> Open(pid_t pid, int fd, size_t bytes);
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&&) = delete;
  ~SharedMapping();

  std::byte* data() const { return data_; }  // zeros at first
  int fd() const { return fd_; }

 private:
  SharedMapping(std::byte* data, size_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}
  std::byte* data_;
  size_t bytes_;
  int fd_;
};

// Bytes that `size` ranks share.
size_t SharedCollectiveBytes(int32_t size);

struct SharedCollectiveOptions {
  // A rank that keeps the others waiting for longer than this within a pass is named in the log, with what it did last, and the
  // process that waits aborts. Nobody loses patience in AllGather, nor while rank 0 has no message.
  int64_t stuck_after_us = 60'000'000;
  std::function<void()>
      on_finish;  // called by Finish when all ranks have come there; empty: nothing
};

// `memory` [SharedCollectiveBytes(size)], zero before the first rank's first call, outlives the object; one object a rank.
std::unique_ptr<Collective> MakeSharedMemoryCollective(int32_t rank, int32_t size,
                                                       std::byte* memory,
                                                       SharedCollectiveOptions options);

}  // namespace sysone
