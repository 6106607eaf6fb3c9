// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace sysone {
namespace {

// The line of this process's memory map that begins with `name`, for the mapping that holds the address.
std::string MapLine(const void* address, const std::string& name) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uint64_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &first, &end) == 2)
      inside = first <= wanted && wanted < end;
    else if (inside && line.starts_with(name))
      return line;
  }
  return "";
}

TEST(Buffer, IsZeroedAlignedAndReadableALittlePastItsEnd) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{4096}, size_t{1} << 20, size_t{5} << 20}) {
    const Buffer buffer(bytes);
    const auto* data = buffer.As<char>();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    EXPECT_TRUE(std::all_of(data, data + bytes + 64, [](char c) { return c == 0; })) << bytes;
  }
}

TEST(Buffer, ALargeOneAsksForHugePagesAndASmallOneDoesNot) {
  const Buffer large(size_t{8} << 20), small(4096);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.As<char>()) % (2 << 20), 0u);
  const std::string flags = MapLine(large.As<char>() + (4 << 20), "VmFlags:");
  ASSERT_FALSE(flags.empty());
  if (std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good()) {
    EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
  }
  EXPECT_EQ(MapLine(small.As<char>(), "VmFlags:").find(" hg"), std::string::npos);
}

TEST(Buffer, IsResidentFromTheStart) {
  const Buffer buffer(size_t{8} << 20);
  long kilobytes = 0;
  const std::string line = MapLine(buffer.As<char>() + (4 << 20), "Rss:");
  ASSERT_EQ(std::sscanf(line.c_str(), "Rss: %ld kB", &kilobytes), 1) << line;
  EXPECT_GE(kilobytes, 8 << 10);
}

TEST(RowStride, IsWholeLinesAndNeverWholePages) {
  for (int64_t cols = 1; cols < 5000; ++cols) {
    const int64_t stride = RowStride<float>(cols);
    ASSERT_GE(stride, cols);
    ASSERT_EQ(stride * 4 % 64, 0);
    ASSERT_NE(stride * 4 % 4096, 0);
  }
}

}  // namespace
}  // namespace sysone
