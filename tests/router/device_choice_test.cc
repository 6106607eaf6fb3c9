// SPDX-License-Identifier: Apache-2.0
#include "router/device_choice.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

// A machine with or without the worker for GPUs and their driver.
class DeviceChoiceTest : public ::testing::Test {
 protected:
  void Add(const std::string& path, mode_t mode) {
    const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, mode);
    ASSERT_GE(file, 0);
    close(file);
  }
  void AddWorker() { Add(worker_, 0700); }
  void AddDriver() { Add(driver_, 0600); }
  Result<DeviceChoice> Choose(const std::string& device, const std::string& dtype = "auto",
                              int local_groups = 1) const {
    ServeOptions options;
    options.device = device;
    options.dtype = dtype;
    options.device_file = driver_;
    options.data_parallel_size_local = local_groups;
    return ChooseDevice(options, folder_.path());
  }
  std::string ErrorOf(const std::string& device, const std::string& dtype = "auto") const {
    const auto choice = Choose(device, dtype);
    return choice.ok() ? "" : choice.status().message();
  }

  const TempFolder folder_;
  const std::string worker_ = folder_.path() + "/sysone-worker-cuda";
  const std::string driver_ = folder_.path() + "/driver";
};

TEST_F(DeviceChoiceTest, AutoTakesGpusWhereProgramAndDriverAreThereAndSaysWhyNotElsewhere) {
  auto choice = Choose("auto");
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->on_gpus);
  EXPECT_EQ(choice->reason,
            "device: cpu, as " + worker_ + " is not there (it is built where CMake finds nvcc)");
  AddWorker();
  choice = Choose("auto");
  EXPECT_FALSE(choice->on_gpus);
  EXPECT_NE(choice->reason.find("as " + driver_ + " is not there"), std::string::npos);
  AddDriver();
  choice = Choose("auto");
  EXPECT_TRUE(choice->on_gpus);
  EXPECT_EQ(choice->reason, "device: cuda");
}

TEST_F(DeviceChoiceTest, CpuIsTakenWhereverItIsAskedFor) {
  AddWorker();
  AddDriver();
  const auto choice = Choose("cpu");
  ASSERT_TRUE(choice.ok());
  EXPECT_FALSE(choice->on_gpus);
  EXPECT_EQ(choice->reason, "device: cpu, as asked");
}

TEST_F(DeviceChoiceTest, CudaNamesWhatIsMissing) {
  EXPECT_EQ(Choose("cuda").status().code(), Code::kNotFound);
  EXPECT_EQ(ErrorOf("cuda").find("--device cuda: " + worker_ + " is not there"), 0u);
  AddWorker();
  EXPECT_EQ(ErrorOf("cuda").find("--device cuda: " + driver_ + " is not there"), 0u);
  AddDriver();
  const auto choice = Choose("cuda");
  ASSERT_TRUE(choice.ok());
  EXPECT_TRUE(choice->on_gpus);
}

TEST_F(DeviceChoiceTest, Fp8NeedsAGpu) {
  EXPECT_EQ(Choose("auto", "fp8").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ErrorOf("auto", "fp8").find("--dtype fp8 is for GPUs"), 0u);
  AddWorker();
  AddDriver();
  EXPECT_TRUE(Choose("auto", "fp8")->on_gpus);
}

TEST_F(DeviceChoiceTest, AHostWithoutGroupsOfItsOwnNeedsNothing) {
  const auto choice = Choose("cuda", "auto", 0);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->reason, "");
}

}  // namespace
}  // namespace sysone
