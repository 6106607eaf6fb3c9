// Usual passes before the first client, and the choices that later starts find.
// SPDX-License-Identifier: Apache-2.0
#include "worker/preload.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "model/model_files.h"
#include "tests/model/temp_folder.h"
#include "tests/worker/choosing_backend.h"

namespace sysone {
namespace {

namespace fs = std::filesystem;
using Passes = std::vector<std::pair<int32_t, int32_t>>;

DecoderLimits Limits(int32_t max_rows, int32_t max_reads, int32_t max_positions) {
  return {max_rows, max_reads, max_positions, 64};
}

TEST(UsualPasses, AreAllSizesThatAPassIsPaddedTo) {
  const ChoosingBackend backend;
  const std::vector<PassCount> all{{4, 1}, {8, 1}, {8, 2}, {16, 1}, {16, 2}, {16, 4}};
  EXPECT_EQ(UsualPasses(backend, Limits(64, 8, 64), 64), all);
}

TEST(UsualPasses, StayWithinTheLimitsOfPasses) {
  const ChoosingBackend backend;
  EXPECT_EQ(UsualPasses(backend, Limits(8, 8, 64), 64).size(), 3u);
  EXPECT_EQ(UsualPasses(backend, Limits(64, 8, 64), 8).size(), 3u);
  EXPECT_EQ(UsualPasses(backend, Limits(64, 1, 64), 64).size(), 3u);
  EXPECT_TRUE(UsualPasses(backend, Limits(3, 8, 64), 64).empty());
}

class PreloadTest : public ::testing::Test {
 protected:
  // A worker's start with the tiny model: a line of the log.
  std::string Start(ChoosingBackend& backend, const PreloadOptions& options,
                    int32_t max_positions = 64) const {
    const auto weights = OpenModelWeights(SYSONE_SOURCE_DIR "/tests/golden/qwen3");
    SYSONE_CHECK(weights.ok(), "%s", weights.status().message().c_str());
    auto decoder = Decoder::Load(backend, weights->config, weights->tensors,
                                 Limits(32, 8, max_positions), [](double) {});
    SYSONE_CHECK(decoder.ok(), "%s", decoder.status().message().c_str());
    const auto ranks = MakeSoloCollective();
    return Preload(backend, **decoder, *ranks, options);
  }
  PreloadOptions Options(bool tune, bool write) const {
    return {folder_.path() + "/tuning", {{"model", "tiny"}}, tune, write, 64};
  }
  // The only file of the cache; "" where there is none.
  std::string File() const {
    const fs::path dir = folder_.path() + "/tuning";
    if (!fs::exists(dir)) return "";
    const fs::directory_iterator first(dir);
    return first == fs::directory_iterator() ? "" : first->path().string();
  }

  const TempFolder folder_;
  const Passes usual_{{4, 1}, {8, 1}, {8, 2}, {16, 1}, {16, 2}, {16, 4}};
  const Passes tuning_{{-4, 1}, {-8, 1}, {-8, 2}, {-16, 1}, {-16, 2}, {-16, 4}};
  Passes Both() const {
    Passes both = tuning_;
    both.insert(both.end(), usual_.begin(), usual_.end());
    return both;
  }
};

TEST_F(PreloadTest, RunsEveryUsualPassOnceAndWritesNothingUnasked) {
  ChoosingBackend backend;
  const std::string done = Start(backend, Options(false, false));
  EXPECT_EQ(backend.passes, usual_);
  EXPECT_TRUE(done.starts_with("6 usual passes run in ")) << done;
  EXPECT_TRUE(done.ends_with(", 3 products, 0 tuned")) << done;
  EXPECT_EQ(File(), "");
}

TEST_F(PreloadTest, PassesAreLongerThanPromptsMayBe) {
  ChoosingBackend backend;
  Start(backend, Options(false, false), /*max_positions=*/5);
  EXPECT_EQ(backend.passes, usual_);
}

TEST_F(PreloadTest, TunesBeforePassesAreRecordedAndALaterStartFindsItsChoices) {
  ChoosingBackend first;
  Start(first, Options(true, true));
  EXPECT_EQ(first.passes, Both());
  ASSERT_NE(File(), "");
  ChoosingBackend later;
  const std::string done = Start(later, Options(false, false));
  EXPECT_EQ(later.passes, usual_);
  EXPECT_TRUE(done.ends_with(", 3 products, 3 tuned")) << done;
  EXPECT_EQ(later.ExportChoices(), first.ExportChoices());
}

TEST_F(PreloadTest, WritesAlsoWhatWasNotTunedIfAsked) {
  ChoosingBackend backend;
  Start(backend, Options(false, true));
  EXPECT_NE(File(), "");
}

TEST_F(PreloadTest, AFileThatSaysTheSameAlreadyIsLeftAlone) {
  ChoosingBackend first, later;
  Start(first, Options(true, true));
  ASSERT_NE(File(), "");
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(24);
  fs::last_write_time(File(), long_ago);
  const auto before = fs::last_write_time(File());
  Start(later, Options(false, true));
  EXPECT_EQ(fs::last_write_time(File()), before);
}

TEST_F(PreloadTest, AFileThatIsOfNoUseIsIgnoredAndWrittenAnew) {
  ChoosingBackend first;
  Start(first, Options(true, true));
  const std::string path = File();
  const auto good = fs::file_size(path);
  const auto start_with = [&](auto&& harm) {
    harm();
    ChoosingBackend backend;
    Start(backend, Options(true, true));
    EXPECT_EQ(backend.passes, Both());
    EXPECT_EQ(fs::file_size(path), good);
  };
  start_with([&] { std::ofstream(path) << "damaged"; });
  start_with([&] { fs::resize_file(path, good / 2); });
  start_with([&] {
    ChoosingBackend other;
    other.driver = "12.9";
    Start(other, Options(true, true));
  });
}

TEST_F(PreloadTest, ChoicesThatTheBackendRefusesAreIgnored) {
  ChoosingBackend first, second;
  Start(first, Options(true, true));
  second.refuses = true;
  const std::string done = Start(second, Options(false, false));
  EXPECT_EQ(second.passes, usual_);
  EXPECT_TRUE(done.ends_with(", 0 tuned")) << done;
}

TEST_F(PreloadTest, AFolderThatCannotBeWrittenIsNoFault) {
  folder_.Write("tuning", "a file in the folder's place");
  ChoosingBackend backend;
  EXPECT_NE(Start(backend, Options(true, true)), "");
  EXPECT_EQ(backend.passes, Both());
}

TEST_F(PreloadTest, WithoutAFolderNothingIsKept) {
  ChoosingBackend backend;
  PreloadOptions options = Options(true, true);
  options.tuning_dir = "";
  Start(backend, options);
  EXPECT_EQ(backend.passes, Both());
}

}  // namespace
}  // namespace sysone
