// A device that never comes to an end with a step, below a worker of one rank and as the worker of GPUs puts it together: the process
// ends in time and says where, so that the router starts another one. On an emulated device.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "model/model_files.h"
#include "tests/kernels/emulation/emulation.h"
#include "worker/decoder.h"
#include "worker/devices.h"

namespace sysone {
namespace {

// A pass of a tiny model; with `stall` the device hangs in front of it.
void RunOnePass(double stuck_after_s, bool stall) {
  emulation::SetDevices(1, size_t{2} << 30, 90);
  ServeOptions options;
  options.role_index = 0;
  options.tensor_parallel_size = 1;
  options.threads = 1;
  options.stuck_after_s = stuck_after_s;
  const Devices devices = CudaDevices();
  auto backend = devices.make_backend(options, {});
  SYSONE_CHECK(backend.ok(), "%s", backend.status().message().c_str());
  auto ranks = devices.join(MakeSoloCollective(), options, {}, **backend);
  SYSONE_CHECK(ranks.ok(), "%s", ranks.status().message().c_str());
  const auto weights = OpenModelWeights(SYSONE_SOURCE_DIR "/tests/golden/qwen3");
  SYSONE_CHECK(weights.ok(), "%s", weights.status().message().c_str());
  auto decoder = Decoder::Load(**backend, weights->config, weights->tensors, {16, 1, 16, 16},
                               [](double) {}, ranks->get());
  SYSONE_CHECK(decoder.ok(), "%s", decoder.status().message().c_str());
  if (stall) {
    emulation::SetWorkTime(emulation::WorkTime::kWhenAsked);
    emulation::Enqueue(static_cast<cudaStream_t>((*backend)->Queue()), [] { return false; });
  }
  const std::vector<TokenId> tokens{1, 2, 3}, labels{4};
  const JobTokens job{{}, {{tokens, labels}}, false};
  const PassItem item{&job, 0, 1};
  Pass pass;
  pass.Build({&item, 1});
  float logit = 0;
  (*decoder)->Forward(pass, {&logit, 1}, {});
}

TEST(StuckDeviceDeathTest, EndsAWorkerOfOneRankThatNamesTheStep) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RunOnePass(0.3, true), "step 1, a pass of rows \\(3\\): not finished after 0\\.");
}

TEST(StuckDevice, ADeviceThatWorksIsLeftInPeace) { RunOnePass(60, false); }

}  // namespace
}  // namespace sysone
