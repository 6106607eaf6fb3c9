// How much of the machine this process may use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace sysone {

// CPUs that the affinity mask of this thread allows, one hardware thread of every core first.
std::vector<int> AllowedCpus();

// CPUs' worth of time that control groups allow, rounded down but at least 1; 0 without a limit. The smallest quota from the
// process's own group up to the root counts; a container usually sees its own group as the root. Reads version 2 (cpu.max) and
// version 1 (cpu.cfs_quota_us under cpu/).
//   groups: the process's groups, as in /proc/self/cgroup;  root: where the groups are mounted.
int CgroupCpus(const std::string& groups, const std::string& root);

// How many threads the affinity mask and the cgroup's CPU quota allow: at least 1.
int AllowedThreads();

}  // namespace sysone
