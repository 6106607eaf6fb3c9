// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/shm_arena/test_arena.h"

namespace sysone {
namespace {

TEST(ArenaIdentity, WhoBringsTheSameProgramAndModelMayJoin) {
  Arena arena = Arena::InMemory(SmallConfig());
  arena.SetIdentity({"1.2.3", "0123456789abcdef"});
  EXPECT_TRUE(arena.CheckIdentity({"1.2.3", "0123456789abcdef"}).ok());
}

TEST(ArenaIdentity, WhatDiffersIsNamedWithBothValues) {
  Arena arena = Arena::InMemory(SmallConfig());
  arena.SetIdentity({"1.2.3", "0123456789abcdef"});
  const Status version = arena.CheckIdentity({"1.2.4", "0123456789abcdef"});
  EXPECT_EQ(version.code(), Code::kUnavailable);
  EXPECT_NE(version.message().find(
                "the program's version is 1.2.4, that of the running instance is 1.2.3"),
            std::string::npos)
      << version.message();
  const Status model = arena.CheckIdentity({"1.2.3", "0123456789abcdee"});
  EXPECT_EQ(model.code(), Code::kUnavailable);
  EXPECT_NE(model.message().find("the model's fingerprint is 0123456789abcdee, that of the running "
                                 "instance is 0123456789abcdef"),
            std::string::npos)
      << model.message();
}

TEST(ArenaIdentity, AShorterOneLeavesNothingOfALongerOne) {
  Arena arena = Arena::InMemory(SmallConfig());
  arena.SetIdentity({"10.20.30", "0123456789abcdef"});
  arena.SetIdentity({"1.2.3", "ab"});
  EXPECT_TRUE(arena.CheckIdentity({"1.2.3", "ab"}).ok());
}

}  // namespace
}  // namespace sysone
