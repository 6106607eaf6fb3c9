// Keys as files: made once, read by the end that needs them, refused by name when they are not right.
// SPDX-License-Identifier: Apache-2.0
#include "link/link_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

std::string ErrorOf(const std::string& dir, LinkEnd end) {
  const auto keys = ReadLinkKeys(dir, end);
  return keys.ok() ? "" : keys.status().message();
}

TEST(LinkKeys, WhatWasMadeFitsTogether) {
  const TempFolder folder;
  const std::string dir = folder.path() + "/keys";
  ASSERT_TRUE(WriteLinkKeys(dir).ok());
  const auto router = ReadLinkKeys(dir, LinkEnd::kRouter);
  const auto host = ReadLinkKeys(dir, LinkEnd::kHost);
  ASSERT_TRUE(router.ok()) << router.status().message();
  ASSERT_TRUE(host.ok()) << host.status().message();
  EXPECT_EQ(router->peers, std::vector<std::string>{host->own.public_key});
  EXPECT_EQ(host->peers, std::vector<std::string>{router->own.public_key});
  EXPECT_NE(router->own.secret_key, host->own.secret_key);
  for (const char* name : {"/router.key", "/host.key"}) {
    struct stat info;
    ASSERT_EQ(stat((dir + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

TEST(LinkKeys, KeysAreNeverOverwritten) {
  const TempFolder folder;
  ASSERT_TRUE(WriteLinkKeys(folder.path()).ok());
  const auto before = ReadLinkKeys(folder.path(), LinkEnd::kHost);
  const Status again = WriteLinkKeys(folder.path());
  EXPECT_EQ(again.code(), Code::kInvalidArgument);
  EXPECT_NE(again.message().find("router.key"), std::string::npos) << again.message();
  EXPECT_EQ(ReadLinkKeys(folder.path(), LinkEnd::kHost)->own.secret_key, before->own.secret_key);
}

TEST(LinkKeys, HostsPubTakesSeveralKeysWithComments) {
  const TempFolder folder;
  ASSERT_TRUE(WriteLinkKeys(folder.path()).ok());
  const std::string other = MakeCurveKeyPair()->public_key;
  std::ofstream(folder.path() + "/hosts.pub", std::ios::app) << "\n# another\n"
                                                             << other << " host-c\n";
  const auto keys = ReadLinkKeys(folder.path(), LinkEnd::kRouter);
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  ASSERT_EQ(keys->peers.size(), 2u);
  EXPECT_EQ(keys->peers[1], other);
}

TEST(LinkKeys, AFileThatIsNotRightIsNamed) {
  const TempFolder folder;
  const std::string& dir = folder.path();
  EXPECT_NE(ErrorOf(dir, LinkEnd::kRouter).find("/router.key"), std::string::npos);
  ASSERT_TRUE(WriteLinkKeys(dir).ok());
  std::ofstream(dir + "/hosts.pub") << "tooshort\n";
  EXPECT_NE(ErrorOf(dir, LinkEnd::kRouter).find("hosts.pub: line 1"), std::string::npos);
  std::ofstream(dir + "/hosts.pub") << "# nobody\n";
  EXPECT_NE(ErrorOf(dir, LinkEnd::kRouter).find("at least one host"), std::string::npos);
  std::ofstream(dir + "/host.key") << MakeCurveKeyPair()->public_key << "\n"
                                   << MakeCurveKeyPair()->secret_key << "\n";
  EXPECT_NE(ErrorOf(dir, LinkEnd::kHost).find("do not belong together"), std::string::npos);
  std::ofstream(dir + "/host.key") << MakeCurveKeyPair()->public_key << "\n";
  EXPECT_NE(ErrorOf(dir, LinkEnd::kHost).find("two keys"), std::string::npos);
}

}  // namespace
}  // namespace sysone
