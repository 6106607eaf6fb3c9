// SPDX-License-Identifier: Apache-2.0
#include "router/machine.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "base/log.h"

namespace sysone {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number behind `key` at the start of a line or of a word; nullopt when it is not there.
std::optional<int64_t> NumberAfter(const std::string& text, const std::string& key) {
  size_t at = 0;
  while ((at = text.find(key, at)) != std::string::npos) {
    if (at == 0 || text[at - 1] == '\n') {
      std::istringstream rest(text.substr(at + key.size()));
      int64_t value = 0;
      if (rest >> value) return value;
    }
    ++at;
  }
  return std::nullopt;
}

std::optional<int64_t> NumberIn(const std::string& path) {
  std::istringstream text(ReadFile(path));
  int64_t value = 0;
  if (text >> value) return value;  // "max" is no number
  return std::nullopt;
}

// The folders that may hold this process's limits for `controller`: its own cgroup, and the root of what is mounted (in a
// container that is its own). /proc/self/cgroup has lines "0::/path" (version 2) and "4:memory:/path" (version 1).
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& controller) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::vector<std::string> folders = {mount, mount + "/" + controller};
  std::istringstream lines(ReadFile(root + "/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (names == ",,") folders.push_back(mount + path);
    if (names.find("," + controller + ",") != std::string::npos)
      folders.push_back(mount + "/" + controller + path);
  }
  return folders;
}

// What a cgroup's memory limit leaves. Cached file pages count as used there, but are given up when memory is wanted.
std::optional<int64_t> CgroupMemoryLeft(const std::string& folder) {
  auto limit = NumberIn(folder + "/memory.max");
  auto used = NumberIn(folder + "/memory.current");
  std::string cached = "inactive_file ";
  if (!limit) {
    limit = NumberIn(folder + "/memory.limit_in_bytes");
    used = NumberIn(folder + "/memory.usage_in_bytes");
    cached = "total_inactive_file ";
  }
  if (!limit || !used) return std::nullopt;
  return std::max<int64_t>(
      *limit - *used + NumberAfter(ReadFile(folder + "/memory.stat"), cached).value_or(0), 0);
}

std::optional<int> CgroupCores(const std::string& folder) {
  int64_t quota = 0;
  int64_t period = 0;
  std::istringstream text(ReadFile(folder + "/cpu.max"));
  if (!(text >> quota >> period)) {
    quota = NumberIn(folder + "/cpu.cfs_quota_us").value_or(-1);
    period = NumberIn(folder + "/cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>((quota + period - 1) / period);
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  constexpr int64_t kKiB = 1024;
  int64_t available =
      NumberAfter(ReadFile(root + "/proc/meminfo"), "MemAvailable:").value_or(0) * kKiB;
  for (const std::string& folder : CgroupFolders(root, "memory")) {
    const auto left = CgroupMemoryLeft(folder);
    if (left && (available == 0 || *left < available)) available = *left;
  }
  return available;
}

int AvailableCores(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  for (const std::string& folder : CgroupFolders(root, "cpu"))
    if (const auto limit = CgroupCores(folder)) cores = std::min(cores, *limit);
  return std::max(cores, 1);
}

std::string BytesText(int64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? Format("%.0f MiB", mib) : Format("%.1f GiB", mib / 1024);
}

}  // namespace sysone
