// What the log says while children start: one line when a child enters a phase and at some steps of loading, and who is
// missing when time runs out. Pure: the children's states are arguments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/serve_options.h"
#include "shm_arena/process_table.h"

namespace sysone {

struct ChildStatus {
  ProcessRole role = ProcessRole::kNone;
  uint32_t index = 0;
  ProcessPhase phase = ProcessPhase::kAbsent;  // kAbsent: started, but not yet in the process table
  uint32_t progress = 0;                       // 0 … 1000 of loading
};

// "worker 0", "API server 2"
std::string ChildName(ProcessRole role, uint32_t index);

// "1 API server", "2 API servers"
std::string Counted(int count, const char* noun);

// What an instance consists of: "1 API server, 2 groups, room for 2 of other hosts".
std::string PartsText(const ServeOptions& options);

class StartProgress {
 public:
  // The lines that the change since the last call deserves. `children` keeps its order from call to call.
  std::vector<std::string> Update(std::span<const ChildStatus> children);

 private:
  struct Shown {
    ProcessPhase phase = ProcessPhase::kAbsent;
    uint32_t step = 0;
  };
  std::vector<Shown> shown_;
};

// Whether every child is ready.
bool AllReady(std::span<const ChildStatus> children);

// "worker 1 (loading, 40 %), API server 0 (not started)": those that are not ready.
std::string MissingText(std::span<const ChildStatus> children);

}  // namespace sysone
