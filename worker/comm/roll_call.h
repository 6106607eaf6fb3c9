// Who of a group's ranks on this machine has come, for the moment before MPI can tell: MPI_Init waits for every rank, and says
// nothing of one that never comes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sysone {

// Made by each rank before it joins, destroyed when it has joined. Each holds a lock on a file of its own in `folder`, which the
// kernel lets go when the process ends, however it ends. When the time is over, this process says which ranks have none, and
// ends with kExitFailure.
class RollCall {
 public:
  // `name`: of this life of the group, the same on all its ranks; part of the files' names.
  RollCall(const std::string& folder, const std::string& name, int32_t rank, int32_t size,
           int64_t patience_us);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  // Ranks that hold no lock now: "1, 3".
  std::string Missing() const;

 private:
  void Watch(int64_t until_us);
  std::string FileOf(int32_t rank) const;

  const std::string prefix_;
  const int32_t rank_;
  const int32_t size_;
  int own_file_ = -1;
  std::mutex mutex_;
  std::condition_variable over_changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace sysone
