// Notices "slot i, generation n is ready" from API servers to the worker of a group, over ZeroMQ. A
// notice is a hint: the slot decides. A repeated one is refused by SlotPool::Take, a lost one is
// found by the worker's sweep (SlotPool::ReadySlots). The only file that knows ZeroMQ.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "shm_arena/ids.h"

namespace sysone {

// Where an instance keeps its sockets: `<xdg_runtime_dir>/sysone-<instance>` when given, else
// /tmp/sysone-<uid>/<instance>.
std::string DefaultRunDir(const std::string& xdg_runtime_dir, uint32_t uid,
                          const std::string& instance);
// Makes the folder (and its parents) for this user alone. An error when it exists and belongs to
// someone else.
Status MakeRunDir(const std::string& run_dir);
// `<run_dir>/group-<g>.ipc`; kInvalidArgument when that is longer than a socket path may be (107
// bytes).
Result<std::string> GroupSocketPath(const std::string& run_dir, GroupId group);

// API-server side: one object per process, any thread.
class Doorbell {
 public:
  // Connects to a group when it first rings there. Create after any fork.
  static Result<std::unique_ptr<Doorbell>> Create(const std::string& run_dir);
  virtual ~Doorbell() = default;
  // Never blocks. False when the notice was dropped (queue full, path too long): the sweep will
  // find the slot.
  virtual bool Ring(GroupId group, SlotHandle slot) = 0;
};

// Worker side (rank 0): one thread.
class DoorbellListener {
 public:
  // Binds the group's socket; a file that a dead worker left there is replaced.
  static Result<std::unique_ptr<DoorbellListener>> Bind(const std::string& run_dir, GroupId group);
  virtual ~DoorbellListener() = default;
  // Waits up to `timeout_us` for the first notice (0 = only look), then takes all that are there,
  // at most `limit`. `out` is replaced.
  virtual void Wait(int64_t timeout_us, size_t limit, std::vector<SlotHandle>& out) = 0;
};

}  // namespace sysone
