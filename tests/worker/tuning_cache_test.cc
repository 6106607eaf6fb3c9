// The file of a tuned model: what is read again, and everything that makes it of no use.
// SPDX-License-Identifier: Apache-2.0
#include "worker/tuning_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sysone {
namespace {

namespace fs = std::filesystem;

const TuningFacts kModel{{"model", "5f0c"}, {"device", "NVIDIA H200, bfloat16"}};
const TuningFacts kVersions{{"CUDA driver", "13.0"}, {"sysone", "0.1.0"}};

std::vector<std::byte> Bytes(int count) {
  std::vector<std::byte> bytes;  // line breaks and zeros among them
  for (int i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(i * 7));
  return bytes;
}

class TuningCacheTest : public ::testing::Test {
 protected:
  TuningCacheTest() {
    std::string pattern = fs::temp_directory_path() / "tuning-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~TuningCacheTest() override { fs::remove_all(dir_); }

  TuningCache Cache() const { return TuningCache(Dir(), kModel, kVersions); }
  std::string Dir() const { return dir_ / "sysone" / "tuning"; }

  static std::string Contents(const TuningCache& cache) {
    std::ifstream file(cache.path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Replace(const TuningCache& cache, const std::string& contents) {
    std::ofstream(cache.path(), std::ios::binary) << contents;
  }
  // Names in the cache's folder.
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(Dir()), {}));
  }

  fs::path dir_;
};

TEST_F(TuningCacheTest, GivesBackWhatWasWritten) {
  for (const int count : {0, 1, 100, 5000}) {
    ASSERT_TRUE(Cache().Write(Bytes(count)).ok());
    const auto read = Cache().Read();
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, Bytes(count));
    EXPECT_EQ(Files(), 1u) << "nothing is left of the writing";
  }
}

TEST_F(TuningCacheTest, IsNotFoundBeforeItIsWritten) {
  EXPECT_EQ(Cache().Read().status().code(), Code::kNotFound);
  EXPECT_FALSE(fs::exists(Dir())) << "reading makes nothing";
}

TEST_F(TuningCacheTest, KeepsSubjectsSideBySide) {
  const TuningCache other(Dir(), {{"model", "77"}, {"device", "NVIDIA H200, bfloat16"}}, kVersions);
  EXPECT_NE(other.path(), Cache().path());
  ASSERT_TRUE(Cache().Write(Bytes(10)).ok());
  ASSERT_TRUE(other.Write(Bytes(20)).ok());
  EXPECT_EQ(*Cache().Read(), Bytes(10));
  EXPECT_EQ(*other.Read(), Bytes(20));
}

TEST_F(TuningCacheTest, NoticesEveryDamagedByte) {
  ASSERT_TRUE(Cache().Write(Bytes(40)).ok());
  const std::string good = Contents(Cache());
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {1, 0x80}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      Replace(Cache(), bad);
      EXPECT_EQ(Cache().Read().status().code(), Code::kCorrupt) << "byte " << at;
    }
  }
}

TEST_F(TuningCacheTest, NoticesThatItIsCutShortOrTooLong) {
  ASSERT_TRUE(Cache().Write(Bytes(40)).ok());
  const std::string good = Contents(Cache());
  for (size_t length = 0; length < good.size(); ++length) {
    Replace(Cache(), good.substr(0, length));
    EXPECT_EQ(Cache().Read().status().code(), Code::kCorrupt) << "first " << length << " bytes";
  }
  Replace(Cache(), good + "x");
  EXPECT_EQ(Cache().Read().status().code(), Code::kCorrupt);
}

TEST_F(TuningCacheTest, IsOfNoUseAfterAnUpdateAndSaysWhichUntilItIsWrittenAnew) {
  ASSERT_TRUE(Cache().Write(Bytes(40)).ok());
  const TuningCache later(Dir(), kModel, {{"CUDA driver", "13.1"}, {"sysone", "0.1.0"}});
  ASSERT_EQ(later.path(), Cache().path());
  const Status status = later.Read().status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("was made for CUDA driver: 13.0, and this is CUDA driver: 13.1"),
            std::string::npos)
      << status.message();
  ASSERT_TRUE(later.Write(Bytes(8)).ok());
  EXPECT_EQ(*later.Read(), Bytes(8));
  EXPECT_EQ(Cache().Read().status().code(), Code::kUnsupported);
}

TEST_F(TuningCacheTest, AFileOfAnotherModelUnderThisNameIsForeign) {
  const TuningCache other(Dir(), {{"model", "77"}, {"device", "NVIDIA H200, bfloat16"}}, kVersions);
  ASSERT_TRUE(other.Write(Bytes(4)).ok());
  fs::copy_file(other.path(), Cache().path());
  EXPECT_EQ(Cache().Read().status().code(), Code::kUnsupported);
}

TEST_F(TuningCacheTest, MoreOrFewerFactsAreAnotherFile) {
  ASSERT_TRUE(Cache().Write(Bytes(4)).ok());
  TuningFacts more = kVersions;
  more.emplace_back("kernel", "6");
  EXPECT_EQ(TuningCache(Dir(), kModel, more).Read().status().code(), Code::kUnsupported);
  EXPECT_EQ(TuningCache(Dir(), kModel, {kVersions[0]}).Read().status().code(), Code::kUnsupported);
}

TEST_F(TuningCacheTest, SomethingElseUnderThisNameIsNoCache) {
  fs::create_directories(Dir());
  Replace(Cache(), "GGUF and more");
  EXPECT_EQ(Cache().Read().status().code(), Code::kCorrupt);
  fs::remove(Cache().path());
  fs::create_directory(Cache().path());
  EXPECT_EQ(Cache().Read().status().code(), Code::kCorrupt);
}

// Not by permissions, which do not bind root.
TEST_F(TuningCacheTest, CannotBeWrittenWhereNoFolderCanBe) {
  std::ofstream(dir_ / "sysone") << "a file where the folder should be";
  const Status status = Cache().Write(Bytes(4));
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(Dir()), std::string::npos) << status.message();
  EXPECT_EQ(Cache().Read().status().code(), Code::kNotFound);
}

TEST_F(TuningCacheTest, CannotReplaceAFolderAndLeavesNothingBehind) {
  fs::create_directories(Cache().path());
  EXPECT_EQ(Cache().Write(Bytes(4)).code(), Code::kUnavailable);
  EXPECT_EQ(Files(), 1u);
}

}  // namespace
}  // namespace sysone
