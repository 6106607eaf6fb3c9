// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_limits.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

namespace sysone {
namespace {

namespace fs = std::filesystem;

// A made-up mount of control groups.
class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "cgroup-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) {
    fs::create_directories(fs::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text << "\n";
  }
  int Cpus(const std::string& groups) const { return CgroupCpus(groups, root_); }

  std::string root_;
};

TEST_F(CgroupTest, WithoutAQuotaThereIsNoLimit) {
  EXPECT_EQ(Cpus(""), 0);
  EXPECT_EQ(Cpus("0::/a\n"), 0);
  Write("/cpu.max", "max 100000");
  Write("/a/cpu.max", "max 100000");
  EXPECT_EQ(Cpus("0::/a\n"), 0);
}

TEST_F(CgroupTest, AQuotaIsRoundedDownButNotToZero) {
  for (const auto& [text, cpus] :
       {std::pair{"200000 100000", 2}, {"350000 100000", 3}, {"20000 100000", 1}}) {
    Write("/cpu.max", text);
    EXPECT_EQ(Cpus("0::/\n"), cpus) << text;
  }
}

TEST_F(CgroupTest, TheSmallestQuotaUpToTheRootCounts) {
  Write("/cpu.max", "800000 100000");
  Write("/a/cpu.max", "300000 100000");
  Write("/a/b/cpu.max", "500000 100000");
  EXPECT_EQ(Cpus("0::/a/b\n"), 3);
  EXPECT_EQ(Cpus("0::/a\n"), 3);
  EXPECT_EQ(Cpus("0::/other\n"), 8);
}

TEST_F(CgroupTest, ReadsVersionOneOfTheCpuControllerOnly) {
  Write("/cpu/a/cpu.cfs_quota_us", "250000");
  Write("/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(Cpus("5:memory:/a\n4:cpu,cpuacct:/a\n"), 2);
  EXPECT_EQ(Cpus("5:memory:/a\n4:cpuset:/a\n"), 0);
  Write("/cpu/a/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(Cpus("4:cpu,cpuacct:/a\n"), 0);
}

TEST(CpuLimits, FollowTheAffinityMaskOfTheThread) {
  const std::vector<int> cpus = AllowedCpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_EQ(std::set<int>(cpus.begin(), cpus.end()).size(), cpus.size());
  EXPECT_GE(AllowedThreads(), 1);
  EXPECT_LE(AllowedThreads(), static_cast<int>(cpus.size()));
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(cpus.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AllowedCpus(), std::vector<int>{cpus.back()});
  EXPECT_EQ(AllowedThreads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace sysone
