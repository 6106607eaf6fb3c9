// Reads of /proc and /sys against folders made up for the test.
// SPDX-License-Identifier: Apache-2.0
#include "router/machine.h"

#include <gtest/gtest.h>

#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr char kMemInfo[] =
    "MemTotal:       33554432 kB\nMemFree:  1 kB\nMemAvailable:   16777216 kB\n";

TEST(Machine, TakesTheKernelsEstimateWithoutCgroups) {
  const TempFolder root;
  root.Write("proc/meminfo", kMemInfo);
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 16 * kGiB);
}

TEST(Machine, TakesWhatACgroupLeavesWhenThatIsLess) {
  const TempFolder root;
  root.Write("proc/meminfo", kMemInfo);
  root.Write("proc/self/cgroup", "0::/pod/box\n");
  root.Write("sys/fs/cgroup/pod/box/memory.max", "4294967296\n");
  root.Write("sys/fs/cgroup/pod/box/memory.current", "3221225472\n");
  root.Write("sys/fs/cgroup/pod/box/memory.stat",
             "anon 5\ninactive_file 1073741824\nactive_file 7\n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 2 * kGiB);
}

TEST(Machine, ACgroupWithoutLimitChangesNothing) {
  const TempFolder root;
  root.Write("proc/meminfo", kMemInfo);
  root.Write("sys/fs/cgroup/memory.max", "max\n");
  root.Write("sys/fs/cgroup/memory.current", "3221225472\n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 16 * kGiB);
}

TEST(Machine, ReadsVersionOneOfCgroups) {
  const TempFolder root;
  root.Write("proc/meminfo", kMemInfo);
  root.Write("proc/self/cgroup", "4:cpu,cpuacct:/a\n3:memory:/b\n");
  root.Write("sys/fs/cgroup/memory/b/memory.limit_in_bytes", "2147483648\n");
  root.Write("sys/fs/cgroup/memory/b/memory.usage_in_bytes", "1073741824\n");
  root.Write("sys/fs/cgroup/memory/b/memory.stat",
             "inactive_file 9\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 3 * kGiB / 2);
}

TEST(Machine, SaysNothingWhenNothingIsKnown) {
  const TempFolder root;
  EXPECT_EQ(AvailableMemoryBytes(root.path()), 0);
}

TEST(Machine, ACpuQuotaBoundsTheCores) {
  const TempFolder root;
  const int unlimited = AvailableCores(root.path());
  EXPECT_GE(unlimited, 1);
  root.Write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(AvailableCores(root.path()), unlimited);
  root.Write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(AvailableCores(root.path()), 1);
}

TEST(Machine, WritesSizesForPeople) {
  EXPECT_EQ(BytesText(100 << 20), "100 MiB");
  EXPECT_EQ(BytesText(3 * kGiB / 2), "1.5 GiB");
}

TEST(Machine, ThisMachineHasMemory) { EXPECT_GT(AvailableMemoryBytes(), 0); }

}  // namespace
}  // namespace sysone
