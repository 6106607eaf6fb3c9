// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_limits.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace sysone {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// First hardware thread of the core that `cpu` belongs to.
int CoreOf(int cpu) {
  std::istringstream siblings(ReadLine("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                       "/topology/thread_siblings_list"));
  int first = cpu;
  siblings >> first;
  return first;
}

// As CgroupCpus, of one group.
int QuotaIn(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(quota / period)) : 0;
}

// `path` begins with a slash, or is empty for the root.
int QuotaOfGroup(const std::string& root, const std::string& path) {
  double quota = 0, period = 0;
  // "max 100000" leaves quota 0.
  std::istringstream(ReadLine(root + path + "/cpu.max")) >> quota >> period;
  if (const int cpus = QuotaIn(quota, period); cpus > 0) return cpus;
  quota = period = 0;
  std::istringstream(ReadLine(root + "/cpu" + path + "/cpu.cfs_quota_us")) >> quota;
  std::istringstream(ReadLine(root + "/cpu" + path + "/cpu.cfs_period_us")) >> period;
  return QuotaIn(quota, period);
}

}  // namespace

int CgroupCpus(const std::string& groups, const std::string& root) {
  std::istringstream lines(groups);
  int least = 0;
  for (std::string line; std::getline(lines, line);) {  // "0::/a/b" or "4:cpu,cpuacct:/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first);  // ":" or ":cpu,cpuacct"
    std::ranges::replace(controllers, ':', ',');
    controllers += ',';
    if (controllers != ",," && controllers.find(",cpu,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    while (true) {
      if (!path.empty() && path.back() == '/') path.pop_back();
      const int cpus = QuotaOfGroup(root, path);
      if (cpus > 0) least = least == 0 ? cpus : std::min(least, cpus);
      if (path.empty()) break;
      path.resize(path.rfind('/') + 1);
    }
  }
  return least;
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> leaders, siblings;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &set)) continue;
      (CoreOf(cpu) == cpu ? leaders : siblings).push_back(cpu);
    }
  }
  leaders.insert(leaders.end(), siblings.begin(), siblings.end());
  return leaders;
}

int AllowedThreads() {
  const int cpus = std::max(1, static_cast<int>(AllowedCpus().size()));
  std::ifstream file("/proc/self/cgroup");
  std::stringstream groups;
  groups << file.rdbuf();
  const int quota = CgroupCpus(groups.str(), "/sys/fs/cgroup");
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace sysone
