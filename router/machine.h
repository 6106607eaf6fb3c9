// How much memory and how many cores this process may use, limits of its cgroup (containers) included.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace sysone {

// Bytes that can be allocated without swapping or being killed: the kernel's estimate, or what the cgroup leaves when that
// is less. `root` stands before /proc and /sys (tests). 0: not known.
int64_t AvailableMemoryBytes(const std::string& root = "");

// Cores that this process may run on, at least 1; a cgroup's CPU quota is rounded up.
int AvailableCores(const std::string& root = "");

// "1.1 GiB"
std::string BytesText(int64_t bytes);

}  // namespace sysone
