// SPDX-License-Identifier: Apache-2.0
#include "base/config_file.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

using Values = std::vector<std::string>;

Values ValuesOf(const std::string& text) {
  const auto entries = ParseConfig(text);
  EXPECT_TRUE(entries.ok()) << entries.status().message();
  if (!entries.ok() || entries->size() != 1) return {"not one entry"};
  return (*entries)[0].values;
}

TEST(ConfigFile, ReadsKeysInOrderWithTheirLines) {
  const auto entries = ParseConfig("---\n# comment\nport: 8123\n\nhost:   127.0.0.1   # here\r\n");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].key, "port");
  EXPECT_EQ((*entries)[0].values, Values{"8123"});
  EXPECT_EQ((*entries)[0].line, 3);
  EXPECT_EQ((*entries)[1].key, "host");
  EXPECT_EQ((*entries)[1].values, Values{"127.0.0.1"});
  EXPECT_EQ((*entries)[1].line, 5);
}

TEST(ConfigFile, ReadsQuotedValues) {
  EXPECT_EQ(ValuesOf("a: \"x # \\\"y\\u00e9\" # c"), Values{"x # \"y\xc3\xa9"});
  EXPECT_EQ(ValuesOf("a: 'it''s # so'"), Values{"it's # so"});
  EXPECT_EQ(ValuesOf("a: don't # c"), Values{"don't"});
}

TEST(ConfigFile, ReadsListsInOneLineAndInSeveral) {
  EXPECT_EQ(ValuesOf("a: [x, \"y, z\", 'w']"), (Values{"x", "y, z", "w"}));
  EXPECT_EQ(ValuesOf("a:\n  - x\n  - \"y\"\n- z: 1\n"), (Values{"x", "y", "z: 1"}));
}

TEST(ConfigFile, KeepsAJsonObjectAsText) {
  EXPECT_EQ(ValuesOf("a: {\"k\": [1, 2]}"), Values{"{\"k\": [1, 2]}"});
}

TEST(ConfigFile, RefusesWhatItDoesNotReadAndNamesTheLine) {
  for (const char* text :
       {"x\n", "a:1\n", "a: 1\n  b: 2\n", "- x\n", "a: 1\n- x\n", "a: |\n", "a: \"x\n", "a: 'x\n",
        "a: [x\n", "a: [x,]\n", "a: {x}\n", "a:\n", "a: []\n", "a: 1\na: 2\n", "a: &x y\n"}) {
    const auto entries = ParseConfig(text);
    ASSERT_FALSE(entries.ok()) << text;
    EXPECT_EQ(entries.status().code(), Code::kInvalidArgument);
    EXPECT_TRUE(entries.status().message().starts_with("line ")) << entries.status().message();
  }
}

}  // namespace
}  // namespace sysone
