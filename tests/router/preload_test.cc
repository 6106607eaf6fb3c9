// `sysone preload` as a program, with a script in the worker's place, and `sysone download-kernels`.
// SPDX-License-Identifier: Apache-2.0
#include "router/preload.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/router/instance_under_test.h"

namespace sysone {
namespace {

constexpr char kTinyModel[] = SYSONE_SOURCE_DIR "/tests/golden/qwen3";

class PreloadCommandTest : public ::testing::Test {
 protected:
  // A program of this name that does what the script says.
  void Add(const std::string& name, const std::string& script) {
    const std::string path = folder_.Write(name, "#!/bin/sh\n" + script + "\n");
    ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  }
  InstanceUnderTest Preload(const std::vector<std::string>& flags) {
    std::vector<std::string> args{"preload",      kTinyModel,      "--program-dir",
                                  folder_.path(), "--device-file", folder_.Write("driver", "")};
    args.insert(args.end(), flags.begin(), flags.end());
    return InstanceUnderTest(args);
  }

  const TempFolder folder_;
};

TEST_F(PreloadCommandTest, StartsTheWorkerOfGpusAndEndsAsItDoes) {
  Add("sysone-worker-cuda", "for arg in \"$@\"; do echo \"[$arg]\"; done; exit 0");
  InstanceUnderTest preload = Preload({"--preload-autotune", "--dtype", "fp8"});
  EXPECT_EQ(preload.Wait(), 0);
  for (const char* const arg : {"[--preload-only]", "[--preload-autotune]", "[fp8]",
                                "[--role-index=0]", "[--model-path=", "[--tuning-dir=", "/tuning]"})
    EXPECT_TRUE(preload.Says(arg)) << arg;
}

TEST_F(PreloadCommandTest, AWorkerThatCannotIsAFailure) {
  Add("sysone-worker-cuda", "echo the GPU is too small >&2; exit 3");
  InstanceUnderTest preload = Preload({});
  EXPECT_EQ(preload.Wait(), 3);
  EXPECT_TRUE(preload.Says("the GPU is too small"));
}

TEST_F(PreloadCommandTest, AWorkerThatDiesIsAFailure) {
  Add("sysone-worker-cuda", "kill -9 $$");
  InstanceUnderTest preload = Preload({});
  EXPECT_EQ(preload.Wait(), 3);
  EXPECT_TRUE(preload.Says("ended with signal 9"));
}

TEST_F(PreloadCommandTest, AStopSignalEndsTheWorker) {
  Add("sysone-worker-cuda", "echo pid $$ in work; exec sleep 1000");
  InstanceUnderTest preload = Preload({});
  ASSERT_TRUE(preload.Says("in work"));
  const std::string output = preload.output();
  const pid_t worker = std::stoi(output.substr(output.find("pid ") + 4));
  EXPECT_TRUE(ProcessExists(worker));
  preload.Signal(SIGTERM);
  EXPECT_EQ(preload.Wait(), 1);
  EXPECT_FALSE(ProcessExists(worker));
}

TEST_F(PreloadCommandTest, SaysWhatIsMissingWhereThereAreNoGpus) {
  InstanceUnderTest preload = Preload({});
  EXPECT_EQ(preload.Wait(), 3);
  EXPECT_TRUE(preload.Says("nothing to preload for CPUs"));
  EXPECT_TRUE(preload.Says("sysone-worker-cuda is not there"));
}

TEST_F(PreloadCommandTest, DownloadKernelsAsksEachProgramAndFetchesNothing) {
  Add("sysone-worker", "echo \"CPUs $1\"");
  testing::internal::CaptureStdout();
  EXPECT_EQ(PrintKernels(folder_.path()), 0);
  const std::string without = testing::internal::GetCapturedStdout();
  EXPECT_NE(without.find("CPUs --print-kernels"), std::string::npos) << without;
  EXPECT_NE(without.find("GPUs: none"), std::string::npos) << without;
  Add("sysone-worker-cuda", "echo \"GPUs $1\"");
  testing::internal::CaptureStdout();
  EXPECT_EQ(PrintKernels(folder_.path()), 0);
  const std::string with = testing::internal::GetCapturedStdout();
  EXPECT_NE(with.find("GPUs --print-kernels"), std::string::npos) << with;
  EXPECT_EQ(with.find("GPUs: none"), std::string::npos) << with;
}

TEST_F(PreloadCommandTest, DownloadKernelsFailsWithAProgramThatDoes) {
  Add("sysone-worker", "exit 127");
  EXPECT_EQ(PrintKernels(folder_.path()), 1);
}

}  // namespace
}  // namespace sysone
