// The machines on which the ranks of a worker group run, as the user gives them: a list, or a host file of OpenMPI.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

struct RankHost {
  std::string name;
  int ranks = 1;  // of one group, at most
};

// "node1:2,node2:2"; a name alone is one rank.
Result<std::vector<RankHost>> ParseHostList(const std::string& list);

// A host a line, with "slots=2" behind it or not; "#" begins a comment; other settings of OpenMPI are passed over.
Result<std::vector<RankHost>> ParseHostFile(const std::string& text);

// From --mpi-hosts or --mpi-hostfile: enough machines for --tensor-parallel-size ranks and no more, the first of them this one,
// because rank 0 works in this machine's arena. Empty when neither flag is given: this machine alone.
Result<std::vector<RankHost>> PlanRankHosts(const ServeOptions& options);

}  // namespace sysone
