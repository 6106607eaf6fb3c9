// Kernels on the emulated device: the right ones give the same bits in every order, and one fault each is found.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "tests/kernels/emulation/emulation_fixture.h"
#include "tests/kernels/emulation/emulation_kernels.h"

namespace sysone::emulation {
namespace {

constexpr int kBlocks = 3;
constexpr int kCount = 117;  // of kSquares

std::vector<float> Inputs() {
  std::vector<float> in(kBlocks * kSquares);
  for (size_t i = 0; i < in.size(); ++i) {
    in[i] = 0.1f * static_cast<float>(i % 41) + static_cast<float>(i / kSquares);
  }
  return in;
}

// As the kernel adds: by halves within a warp, then the warps in order.
std::vector<uint32_t> ExpectedBits() {
  const std::vector<float> in = Inputs();
  std::vector<uint32_t> bits;
  for (int block = 0; block < kBlocks; ++block) {
    float total = 0;
    for (int warp = 0; warp < kSquares / 32; ++warp) {
      float lanes[32];
      for (int lane = 0; lane < 32; ++lane) {
        const int i = warp * 32 + 31 - lane;
        const float value = i < kCount ? in[static_cast<size_t>(block * kSquares + i)] : 0;
        lanes[lane] = value * value;
      }
      for (int half = 16; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
      }
      total += lanes[0];
    }
    bits.push_back(std::bit_cast<uint32_t>(total));
  }
  return bits;
}

struct Outcome {
  std::vector<uint32_t> bits;  // empty where there was a fault
  std::string fault;
};

Outcome RunSquares(Fault fault, const ThreadOrder& order) {
  SetThreadOrder(order);
  Outcome outcome;
  // NaN behind the last value of each block, so that one too many is seen.
  std::vector<float> in = Inputs();
  for (size_t i = 0; i < in.size(); ++i) {
    if (i % kSquares >= kCount) in[i] = std::nanf("");
  }
  {
    const OnDevice<float> values(in), out(kBlocks);
    SumOfSquares(fault, values.data(), kBlocks, kCount, out.data(), nullptr);
    if (cudaDeviceSynchronize() == cudaSuccess) {
      for (const float sum : out.Read()) outcome.bits.push_back(std::bit_cast<uint32_t>(sum));
    }
    outcome.fault = TakeFault();  // before the memory is freed, which else fails
  }
  return outcome;
}

using EmulationTest = EmulationFixture;

TEST_F(EmulationTest, ARightKernelGivesTheSameBitsInEveryOrder) {
  for (const ThreadOrder& order : EveryOrder()) {
    const Outcome outcome = RunSquares(Fault::kNone, order);
    EXPECT_EQ(outcome.fault, "") << NameOf(order);
    EXPECT_EQ(outcome.bits, ExpectedBits()) << NameOf(order);
  }
}

struct Planted {
  Fault fault;
  const char* message;  // "": the results are wrong in an order at least
};

class PlantedFaultTest : public EmulationFixture, public testing::WithParamInterface<Planted> {};

TEST_P(PlantedFaultTest, IsFound) {
  const Planted planted = GetParam();
  int wrong = 0;
  for (const ThreadOrder& order : EveryOrder()) {
    const Outcome outcome = RunSquares(planted.fault, order);
    if (*planted.message != '\0') {
      EXPECT_NE(outcome.fault.find(planted.message), std::string::npos)
          << NameOf(order) << ": " << outcome.fault;
    } else {
      EXPECT_EQ(outcome.fault, "") << NameOf(order);
    }
    wrong += outcome.bits != ExpectedBits();
  }
  EXPECT_GT(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedFaultTest,
    testing::Values(
        Planted{Fault::kNoBarrier, ""}, Planted{Fault::kNoWarpBarrier, ""},
        Planted{Fault::kRace, ""},
        Planted{Fault::kWriteBehindShared, "wrote to byte 528 of its shared memory of 528 bytes"},
        Planted{Fault::kWriteBeforeShared, "wrote to byte -4 of its shared memory of 528 bytes"},
        Planted{Fault::kReadBehindShared, ""},
        Planted{Fault::kWriteBehindOut, "wrote to byte 12 of an allocation of 12 bytes"},
        Planted{Fault::kWriteBeforeOut, "wrote to byte -4 of an allocation of 12 bytes"},
        Planted{Fault::kOneTooMany, ""},
        Planted{Fault::kMaskWithoutLastLane, "lane 31 is not in its own mask at __shfl_xor_sync"},
        Planted{Fault::kOtherMasks, "the kernel stands still"},
        Planted{Fault::kDivergentBarrier, "the kernel stands still"},
        Planted{Fault::kTwoBarriers, "waits at the __syncthreads of emulation_kernels.cu"},
        Planted{Fault::kEarlyExit, "the kernel stands still"},
        Planted{Fault::kOtherCall, "lanes of a warp disagree"}));

TEST_F(EmulationTest, ARaceGivesOtherBitsInAnotherOrder) {
  std::set<std::vector<uint32_t>> seen;
  for (const ThreadOrder& order : EveryOrder()) seen.insert(RunSquares(Fault::kRace, order).bits);
  EXPECT_GT(seen.size(), 1u);
}

TEST_F(EmulationTest, AStandstillNamesWhoWaitsAndWhoHasEnded) {
  const Outcome outcome = RunSquares(Fault::kDivergentBarrier, {});
  EXPECT_NE(outcome.fault.find("threads 0 to 95 wait at __syncthreads"), std::string::npos);
  EXPECT_NE(outcome.fault.find("threads 96 to 127 have ended"), std::string::npos) << outcome.fault;
}

TEST_F(EmulationTest, OrdersHaveNames) {
  for (const ThreadOrder& order : EveryOrder()) {
    const ThreadOrder found = OrderNamed(NameOf(order));
    EXPECT_EQ(found.kind, order.kind);
    EXPECT_EQ(found.seed, order.seed);
  }
  EXPECT_EQ(OrderNamed("shuffled:71").seed, 71u);
  EXPECT_DEATH(OrderNamed("sideways"), "an order is forward, backward");
}

TEST_F(EmulationTest, LanesExchangeValues) {
  for (const ThreadOrder& order : EveryOrder()) {
    SetThreadOrder(order);
    const OnDevice<LaneResults> out(32);
    UseLanes(out.data(), nullptr);
    const std::vector<LaneResults> results = out.Read();
    for (int lane = 0; lane < 32; ++lane) {
      const LaneResults& mine = results[static_cast<size_t>(lane)];
      EXPECT_EQ(mine.from, lane / 8 * 8 + 3);
      EXPECT_EQ(mine.crossed, lane ^ 5);
      EXPECT_EQ(mine.down, lane % 16 < 14 ? lane + 2 : lane);
      EXPECT_EQ(mine.up, lane % 16 >= 2 ? lane - 2 : lane);
      EXPECT_EQ(mine.odd, 0xAAAAAAAAu);
    }
  }
}

TEST_F(EmulationTest, AtomicsCountEveryValue) {
  std::vector<int> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * i);
  std::vector<int> expected(8, 0);
  for (const int value : values) ++expected[static_cast<size_t>(value % 8)];
  for (const ThreadOrder& order : EveryOrder()) {
    SetThreadOrder(order);
    const OnDevice<int> on_device(values), counts(std::vector<int>(8, 0));
    CountRemainders(on_device.data(), 1000, counts.data(), nullptr);
    EXPECT_EQ(counts.Read(), expected);
  }
}

// --- Tensor cores. -----------------------------------------------------------------------------------------------------------

uint16_t Bfloat16Bits(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); }

TEST_F(EmulationTest, TensorProductsAreThoseOfPlainLoopsHoweverTheirSidesAreLoaded) {
  // Small integers: exact in bfloat16 and in every order of the sums.
  std::vector<uint16_t> a(16 * 16), b(16 * 8);
  std::vector<float> d(16 * 8), expected(16 * 8);
  const auto of_a = [](int i) { return static_cast<float>(i * 7 % 23 - 11); };
  const auto of_b = [](int i) { return static_cast<float>(i * 5 % 19 - 9); };
  for (int i = 0; i < 16 * 16; ++i) a[static_cast<size_t>(i)] = Bfloat16Bits(of_a(i));
  for (int i = 0; i < 16 * 8; ++i) b[static_cast<size_t>(i)] = Bfloat16Bits(of_b(i));
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      const auto at = static_cast<size_t>(row * 8 + col);
      d[at] = expected[at] = static_cast<float>(row - col);
      for (int k = 0; k < 16; ++k) expected[at] += of_a(row * 16 + k) * of_b(k * 8 + col);
    }
  }
  for (const FragmentLoads loads :
       {FragmentLoads::kByElement, FragmentLoads::kMatrices, FragmentLoads::kTransposed}) {
    for (const ThreadOrder& order : EveryOrder()) {
      SetThreadOrder(order);
      const OnDevice<uint16_t> device_a(a), device_b(b);
      const OnDevice<float> device_d(d);
      TensorProduct(loads, device_a.data(), device_b.data(), device_d.data(), nullptr);
      EXPECT_EQ(device_d.Read(), expected) << static_cast<int>(loads) << ", " << NameOf(order);
    }
  }
}

TEST_F(EmulationTest, MatricesAreLoadedFromSharedMemoryAtMultiplesOfSixteenBytes) {
  const OnDevice<uint32_t> out(32 * 4);
  LoadAt(48, 64, out.data(), nullptr);
  EXPECT_EQ(out.Read()[5], 0xFFFFFFFFu);  // nobody wrote there
  LoadAt(8, 64, out.data(), nullptr);
  EXPECT_NE(TakeFault().find("at no multiple of 16 bytes"), std::string::npos);
  LoadAt(64, 64, out.data(), nullptr);
  EXPECT_NE(TakeFault().find("outside of shared memory"), std::string::npos);
}

}  // namespace
}  // namespace sysone::emulation
