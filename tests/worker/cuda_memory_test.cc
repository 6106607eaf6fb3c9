// A model that the device does not hold ends loading with an error, over a small emulated device.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_backend.h"
#include "model/model_files.h"
#include "tests/kernels/emulation/emulation.h"
#include "worker/decoder.h"

namespace sysone {
namespace {

TEST(CudaMemory, AModelThatDoesNotFitEndsLoadingWithAnError) {
  auto weights = OpenModelWeights(std::string(SYSONE_SOURCE_DIR) + "/tests/golden/qwen3");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  for (const size_t mib : {600, 1200}) {
    emulation::SetDevices(1, mib << 20, 90);
    auto backend = MakeCudaBackend({.threads = 1});
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    // Of activations alone, some 700 MiB.
    const auto decoder = Decoder::Load(**backend, weights->config, weights->tensors,
                                       {1 << 19, 8, 512, 1024}, [](double) {});
    ASSERT_FALSE(decoder.ok()) << mib;
    EXPECT_EQ(decoder.status().code(), Code::kOutOfMemory);
    EXPECT_NE(decoder.status().message().find("--gpu-memory-utilization"), std::string::npos)
        << decoder.status().message();
  }
  emulation::SetDevices(1, size_t{8} << 30, 90);
}

}  // namespace
}  // namespace sysone
