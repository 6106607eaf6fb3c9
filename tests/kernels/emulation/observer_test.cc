// The emulated device tells what a stream is given.
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "tests/kernels/emulation/emulation_fixture.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone::emulation {
namespace {

using ObserverTest = EmulationFixture;

TEST_F(ObserverTest, LaunchesAreToldInTheirOrderAndKernelsAreNotRun) {
  const std::vector<float> ones(2 * kSquares, 1.0f);
  const OnDevice<float> in(ones), out(std::vector<float>{7, 7});
  std::vector<Launched> told;
  ObserveLaunches([&](const Launched& launched) { told.push_back(launched); });
  SYSONE_CUDA(cudaMemcpy(in.data(), ones.data(), in.bytes(), cudaMemcpyHostToDevice));
  SumOfSquares(Fault::kNone, in.data(), 2, kSquares, out.data(), nullptr);
  const std::vector<float> not_run = out.Read();
  ObserveLaunches({});
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0].kind, Launched::Kind::kCopy);
  EXPECT_EQ(told[1].kind, Launched::Kind::kKernel);
  EXPECT_NE(told[1].kernel, nullptr);
  EXPECT_EQ(told[1].grid.x, 2u);
  EXPECT_EQ(told[2].kind, Launched::Kind::kCopy);
  EXPECT_EQ(not_run[0], 7.0f);

  SumOfSquares(Fault::kNone, in.data(), 2, kSquares, out.data(), nullptr);
  EXPECT_EQ(out.Read()[0], kSquares);
  EXPECT_EQ(told.size(), 3u);
}

}  // namespace
}  // namespace sysone::emulation
