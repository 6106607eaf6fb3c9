// Products of the CUDA backend on the emulated device, whose cuBLASLt is plain loops: every encoding against sums in double, and
// what becomes of the choices of algorithms. That library's algorithms give different bits, as the real one's do.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight_encoding.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

constexpr double kU = 0x1p-24;
// Rounding errors of n operations exceed kLambda · sqrt(n) units with a probability below 2n · exp(-kLambda² / 2).
constexpr double kLambda = 8;
constexpr int32_t kOffset = 2;  // first row of a sum

enum class Kind { kPlain, kBias, kAdd };

struct Shape {
  int64_t rows, out_cols, in_cols;
};

std::string EncodingName(const ::testing::TestParamInfo<Encoding>& info) {
  const char* const names[] = {"float32", "bfloat16", "int8", "fp8"};
  return names[static_cast<int>(info.param)];
}

std::vector<float> Normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(normal(random));
  return values;
}

template <class T>
void ToDevice(const std::vector<T>& values, void* to) {
  if (!values.empty())
    SYSONE_CUDA(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

DeviceArray<float> OnDevice(const std::vector<float>& values) {
  DeviceArray<float> array(std::ssize(values));
  ToDevice(values, array.data());
  return array;
}

// Rows as a side of a product has them, and the numbers that they stand for.
struct Encoded {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  std::vector<double> values;  // [rows, cols]
};

double ValueOf(Encoding encoding, const std::byte* at, int64_t i) {
  switch (encoding) {
    case Encoding::kFloat32: {
      float value;
      std::memcpy(&value, at + 4 * i, sizeof value);
      return value;
    }
    case Encoding::kBfloat16: {
      uint16_t bits;
      std::memcpy(&bits, at + 2 * i, sizeof bits);
      return std::bit_cast<float>(uint32_t{bits} << 16);
    }
    case Encoding::kInt8:
      return static_cast<int8_t>(at[i]);
    case Encoding::kFp8:
      return FromFp8(static_cast<uint8_t>(at[i]));
  }
  return std::nan("");
}

Encoded Encode(Encoding encoding, const std::vector<float>& values, int64_t rows, int64_t cols,
               int64_t padded_rows) {
  const int64_t stride = PaddedDepth(cols);
  Encoded all;
  all.bytes.resize(static_cast<size_t>(padded_rows * stride * BytesOf(encoding)));
  all.scales.resize(static_cast<size_t>(padded_rows));
  for (int64_t r = 0; r < rows; ++r) {
    const std::span row(values.data() + r * cols, static_cast<size_t>(cols));
    std::byte* const at = all.bytes.data() + r * stride * BytesOf(encoding);
    const float scale = EncodeWeightRow(encoding, row, stride, at);
    all.scales[static_cast<size_t>(r)] = scale;
    for (int64_t c = 0; c < cols; ++c) all.values.push_back(ValueOf(encoding, at, c) * scale);
  }
  return all;
}

struct Operands {
  Operands(Encoding encoding, const Shape& shape, uint32_t seed)
      : x_numbers(Encode(encoding, Normal(shape.rows * shape.in_cols, seed), shape.rows,
                         shape.in_cols, shape.rows)),
        w_numbers(Encode(encoding, Normal(shape.out_cols * shape.in_cols, seed + 1), shape.out_cols,
                         shape.in_cols, PaddedDepth(shape.out_cols))) {
    x.encoding = weight.encoding = encoding;
    x.rows = shape.rows;
    x.cols = weight.in_cols = shape.in_cols;
    x.stride = weight.stride = PaddedDepth(shape.in_cols);
    weight.out_cols = shape.out_cols;
    weight.padded_out = PaddedDepth(shape.out_cols);
    x.values = DeviceArray<std::byte>(std::ssize(x_numbers.bytes));
    weight.values = DeviceArray<std::byte>(std::ssize(w_numbers.bytes));
    ToDevice(x_numbers.bytes, x.values.data());
    ToDevice(w_numbers.bytes, weight.values.data());
    if (!HasScales(encoding)) return;
    x.scales = OnDevice(x_numbers.scales);
    weight.scales = OnDevice(w_numbers.scales);
  }

  Encoded x_numbers, w_numbers;
  CudaOperand x;
  CudaWeight weight;
};

class CudaMatMulTest : public ::testing::TestWithParam<Encoding> {
 protected:
  CudaMatMulTest() { SYSONE_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaMatMulTest() override {
    EXPECT_EQ(emulation::TakeFault(), "");
    cudaStreamDestroy(stream_);
  }

  MatMulOptions Options() const {
    MatMulOptions options;
    options.encoding = GetParam();
    options.workspace_bytes = options.scratch_bytes = size_t{1} << 20;
    return options;
  }
  std::unique_ptr<CudaMatMul> Make(const MatMulOptions& options) const {
    auto made = CudaMatMul::Make(options, stream_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }
  std::unique_ptr<CudaMatMul> Make() const { return Make(Options()); }

  std::vector<float> Read(const CudaTensor& tensor) const {
    std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
    SYSONE_CUDA(cudaStreamSynchronize(stream_));
    if (!values.empty())
      SYSONE_CUDA(cudaMemcpy(values.data(), tensor.values.data(), values.size() * sizeof(float),
                             cudaMemcpyDeviceToHost));
    return values;
  }

  // Rows [kOffset …) are the product's for kAdd, all of them otherwise; `extra` is the bias or what is there before.
  std::vector<float> Run(CudaMatMul& matmul, const Operands& operands, int32_t rows, Kind kind,
                         const std::vector<float>& extra) const {
    CudaTensor out;
    out.cols = operands.weight.out_cols;
    out.rows = kind == Kind::kAdd ? rows + kOffset : rows;
    out.values = DeviceArray<float>(out.rows * out.cols);
    if (kind == Kind::kAdd) {
      ToDevice(extra, out.values.data());
      matmul.MultiplyAdd(operands.x, operands.weight, {kOffset, rows}, out);
    } else {
      CudaVector bias;
      if (kind == Kind::kBias) bias.values = OnDevice(extra);
      matmul.Multiply(operands.x, operands.weight, kind == Kind::kBias ? &bias : nullptr, rows,
                      out);
      SYSONE_CUDA(cudaStreamSynchronize(stream_));  // bias ends here
    }
    return Read(out);
  }
  std::vector<float> Run(CudaMatMul& matmul, const Operands& operands, int32_t rows) const {
    return Run(matmul, operands, rows, Kind::kPlain, {});
  }

  std::vector<float> Extra(const Shape& shape, Kind kind) const {
    if (kind == Kind::kPlain) return {};
    return Normal(shape.out_cols * (kind == Kind::kBias ? 1 : shape.rows + kOffset), 99);
  }

  // A result is the sum of `in_cols` products, each exact or rounded once, the sum is rounded at each step; scales and what is
  // added round a few times more. The numbers of int8 are exact sums, which the bound covers as well.
  void Check(CudaMatMul& matmul, const Shape& shape, Kind kind) const {
    SCOPED_TRACE(::testing::Message() << shape.rows << " rows, " << shape.in_cols << " to "
                                      << shape.out_cols << ", kind " << static_cast<int>(kind));
    const Operands operands(GetParam(), shape, static_cast<uint32_t>(shape.rows + shape.out_cols));
    const auto extra = Extra(shape, kind);
    const auto got = Run(matmul, operands, static_cast<int32_t>(shape.rows), kind, extra);
    std::vector<double> want, tolerance;
    if (kind == Kind::kAdd) {
      want.assign(extra.begin(), extra.begin() + kOffset * shape.out_cols);
      tolerance.assign(want.size(), 0);
    }
    const double roundings = kLambda * std::sqrt(static_cast<double>(shape.in_cols) + 6) * kU;
    for (int64_t r = 0; r < shape.rows; ++r) {
      for (int64_t c = 0; c < shape.out_cols; ++c) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < shape.in_cols; ++k) {
          const double product =
              operands.x_numbers.values[static_cast<size_t>(r * shape.in_cols + k)] *
              operands.w_numbers.values[static_cast<size_t>(c * shape.in_cols + k)];
          sum += product;
          magnitude += std::abs(product);
        }
        const double added = kind == Kind::kBias ? extra[static_cast<size_t>(c)]
                             : kind == Kind::kAdd
                                 ? extra[static_cast<size_t>((r + kOffset) * shape.out_cols + c)]
                                 : 0;
        want.push_back(sum + added);
        tolerance.push_back(roundings * (magnitude + std::abs(added)));
      }
    }
    EXPECT_TRUE(Within(got, want, tolerance));
  }

  void CheckAllKinds(CudaMatMul& matmul, const Shape& shape) const {
    for (const Kind kind : {Kind::kPlain, Kind::kBias, Kind::kAdd}) Check(matmul, shape, kind);
  }

  cudaStream_t stream_ = nullptr;
};

TEST_P(CudaMatMulTest, AgreesOverWidths) {
  const auto matmul = Make();
  for (int64_t cols = 1; cols <= 34; ++cols) CheckAllKinds(*matmul, {5, cols, 19});
}

TEST_P(CudaMatMulTest, AgreesOverDepths) {
  const auto matmul = Make();
  for (int64_t depth = 1; depth <= 34; ++depth) CheckAllKinds(*matmul, {3, 37, depth});
  CheckAllKinds(*matmul, {3, 37, 1000});
}

TEST_P(CudaMatMulTest, AgreesOverRowCounts) {
  const auto matmul = Make();
  for (int64_t rows = 1; rows <= 34; ++rows) CheckAllKinds(*matmul, {rows, 17, 48});
  for (const int64_t rows : {257, 512, 513, 700}) CheckAllKinds(*matmul, {rows, 20, 33});
}

TEST_P(CudaMatMulTest, DoesNothingForNoRows) {
  const auto matmul = Make();
  for (const Kind kind : {Kind::kPlain, Kind::kBias, Kind::kAdd}) Check(*matmul, {0, 20, 30}, kind);
  EXPECT_EQ(matmul->counts().shapes, 0);
}

TEST_P(CudaMatMulTest, RunsWithFewerRowsThanTheOperandHas) {
  const auto matmul = Make();
  const Operands operands(GetParam(), {20, 24, 40}, 3);
  const auto all = Run(*matmul, operands, 20), some = Run(*matmul, operands, 20);
  EXPECT_TRUE(SameBits(all, some)) << "the same from run to run";
  EXPECT_EQ(Run(*matmul, operands, 7).size(), 7u * 24);
}

TEST_P(CudaMatMulTest, ANumberThatIsNoneStaysInItsRowOrColumn) {
  const auto matmul = Make();
  constexpr int64_t kRows = 4, kCols = 6, kDepth = 20;
  Operands operands(GetParam(), {kRows, kCols, kDepth}, 3);
  auto x = Normal(kRows * kDepth, 5), w = Normal(kCols * kDepth, 6);
  x[2 * kDepth + 7] = w[4 * kDepth + 3] = std::nanf("");
  const Encoded bad_x = Encode(GetParam(), x, kRows, kDepth, kRows);
  const Encoded bad_w = Encode(GetParam(), w, kCols, kDepth, PaddedDepth(kCols));
  ToDevice(bad_x.bytes, operands.x.values.data());
  ToDevice(bad_w.bytes, operands.weight.values.data());
  if (HasScales(GetParam())) {
    ToDevice(bad_x.scales, operands.x.scales.data());
    ToDevice(bad_w.scales, operands.weight.scales.data());
  }
  const auto got = Run(*matmul, operands, kRows);
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < kCols; ++c)
      EXPECT_EQ(std::isnan(got[static_cast<size_t>(r * kCols + c)]), r == 2 || c == 4)
          << r << ", " << c;
}

TEST_P(CudaMatMulTest, ASmallScratchMeansMorePiecesAndTheSameResult) {
  MatMulOptions options = Options();
  const Shape shape{150, 70, 48};
  options.scratch_bytes = 80 * 4 * 9;  // 9 rows of 80 columns
  const auto small = Make(options), large = Make();
  CheckAllKinds(*small, shape);
  options.scratch_bytes = 80 * 4 * 100;  // 64 rows, and the rest
  const auto some = Make(options);
  CheckAllKinds(*some, shape);
  if (GetParam() != Encoding::kInt8) return;
  const Operands operands(GetParam(), shape, 4);
  EXPECT_TRUE(SameBits(Run(*small, operands, 150), Run(*large, operands, 150)));
}

// --- Choices. ----------------------------------------------------------------------------------------------------------------

TEST_P(CudaMatMulTest, AsksOnceForAShape) {
  const auto matmul = Make();
  const Operands operands(GetParam(), {600, 24, 40}, 3), other(GetParam(), {600, 40, 40}, 4);
  for (int pass = 0; pass < 3; ++pass) {
    for (const int32_t rows : {8, 16}) {
      Run(*matmul, operands, rows);
      Run(*matmul, other, rows);
    }
    EXPECT_EQ(matmul->counts().heuristic_queries, 4);
    EXPECT_EQ(matmul->counts().shapes, 4);
  }
}

TEST_P(CudaMatMulTest, ManyRowsShareTheChoiceOfTheirNeighbours) {
  const auto matmul = Make();
  const Operands operands(GetParam(), {1024, 8, 16}, 3);
  for (const int32_t rows : {513, 514, 600, 640}) Run(*matmul, operands, rows);
  EXPECT_EQ(matmul->counts().heuristic_queries, 1);
  Run(*matmul, operands, 641);
  EXPECT_EQ(matmul->counts().heuristic_queries, 2);
  for (const int64_t rows : {513, 600}) Check(*matmul, {rows, 8, 16}, Kind::kPlain);
}

TEST_P(CudaMatMulTest, ACapturedProductCanBeRepeated) {
  const auto matmul = Make();
  const Operands operands(GetParam(), {9, 24, 40}, 3);
  CudaTensor out;
  out.rows = 9, out.cols = 24;
  out.values = DeviceArray<float>(9 * 24);
  cudaGraph_t graph;
  SYSONE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  matmul->SetTuning(true);  // which waits for another time
  matmul->Multiply(operands.x, operands.weight, nullptr, 9, out);
  matmul->SetTuning(false);
  SYSONE_CUDA(cudaStreamEndCapture(stream_, &graph));
  EXPECT_EQ(matmul->counts().tuned, 0);
  cudaGraphExec_t exec;
  SYSONE_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    SYSONE_CUDA(cudaMemset(out.values.data(), 0, out.values.bytes()));
    SYSONE_CUDA(cudaGraphLaunch(exec, stream_));
    EXPECT_TRUE(SameBits(Read(out), Run(*matmul, operands, 9)));
  }
  SYSONE_CUDA(cudaGraphExecDestroy(exec));
  SYSONE_CUDA(cudaGraphDestroy(graph));
}

// The first row's bits, for each number of rows.
std::vector<std::vector<float>> FirstRows(const std::function<std::vector<float>(int32_t)>& run,
                                          int64_t cols) {
  std::vector<std::vector<float>> rows;
  for (const int32_t count : {1, 2, 3, 8, 9, 31, 33, 100, 256, 257, 300, 512, 513, 700}) {
    auto values = run(count);
    values.resize(static_cast<size_t>(cols));
    rows.push_back(std::move(values));
  }
  return rows;
}

bool AllTheSame(const std::vector<std::vector<float>>& rows) {
  for (const auto& row : rows)
    if (!SameBits(row, rows[0])) return false;
  return true;
}

TEST_P(CudaMatMulTest, BatchInvariantTakesOneAlgorithmForAllRowCounts) {
  MatMulOptions options = Options();
  options.batch_invariant = true;
  const auto invariant = Make(options), usual = Make();
  const Operands operands(GetParam(), {700, 24, 200}, 3);
  const auto with = [&](CudaMatMul& matmul) {
    return FirstRows([&](int32_t count) { return Run(matmul, operands, count); }, 24);
  };
  EXPECT_TRUE(AllTheSame(with(*invariant)));
  EXPECT_EQ(invariant->counts().heuristic_queries, 1);
  // Sums of int8 are exact, and those of so few products of fp8 nearly always.
  if (!HasScales(GetParam())) {
    EXPECT_FALSE(AllTheSame(with(*usual))) << "the bits follow the algorithm";
  }
  CheckAllKinds(*invariant, {40, 24, 200});
}

TEST_P(CudaMatMulTest, ChoicesCanBeTakenOver) {
  for (const bool batch_invariant : {false, true}) {
    MatMulOptions options = Options();
    options.batch_invariant = batch_invariant;
    const auto first = Make(options), second = Make(options);
    const Operands operands(GetParam(), {600, 24, 40}, 3), other(GetParam(), {600, 40, 40}, 4);
    const auto run = [&](CudaMatMul& matmul) {
      std::vector<float> all;
      for (const int32_t rows : {8, 16, 600}) {
        for (const auto* product : {&operands, &other}) {
          const auto values = Run(matmul, *product, rows);
          all.insert(all.end(), values.begin(), values.end());
        }
      }
      return all;
    };
    const auto want = run(*first);
    const auto bytes = first->ExportChoices();
    const auto taken = second->ImportChoices(bytes);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    EXPECT_EQ(*taken, first->counts().heuristic_queries);
    EXPECT_EQ(second->counts().imported, *taken);
    EXPECT_TRUE(SameBits(run(*second), want));
    EXPECT_EQ(second->counts().heuristic_queries, 0);
    EXPECT_EQ(second->ExportChoices(), bytes);
  }
}

TEST_P(CudaMatMulTest, TakenChoicesReplaceOwnOnes) {
  MatMulOptions options = Options();
  options.workspace_bytes = 0;  // as on a device with little memory: other algorithms
  const auto poor = Make(options), rich = Make();
  const Operands operands(GetParam(), {8, 24, 200}, 3);
  const auto want = Run(*poor, operands, 8);
  Run(*rich, operands, 8);
  EXPECT_NE(rich->ExportChoices(), poor->ExportChoices());
  ASSERT_TRUE(rich->ImportChoices(poor->ExportChoices()).ok());
  EXPECT_TRUE(SameBits(Run(*rich, operands, 8), want));
  EXPECT_EQ(rich->counts().heuristic_queries, 1);
}

TEST_P(CudaMatMulTest, ChoicesThatTheDeviceRefusesArePassedOver) {
  MatMulOptions options = Options();
  options.workspace_bytes = 0;
  const auto poor = Make(options), rich = Make();
  const Operands operands(GetParam(), {8, 24, 200}, 3);
  Run(*rich, operands, 8);  // chooses halves, which need a workspace
  const auto taken = poor->ImportChoices(rich->ExportChoices());
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(*taken, 0);
  Check(*poor, {8, 24, 200}, Kind::kPlain);
}

TEST_P(CudaMatMulTest, ForeignAndDamagedChoicesAreRefused) {
  const auto matmul = Make();
  const Operands operands(GetParam(), {8, 24, 40}, 3);
  Run(*matmul, operands, 8);
  const auto own = matmul->ExportChoices();
  MatMulOptions options = Options();
  options.batch_invariant = true;
  EXPECT_EQ(matmul->ImportChoices(Make(options)->ExportChoices()).status().code(),
            Code::kUnsupported);
  options = Options();
  options.encoding = GetParam() == Encoding::kInt8 ? Encoding::kBfloat16 : Encoding::kInt8;
  EXPECT_EQ(matmul->ImportChoices(Make(options)->ExportChoices()).status().code(),
            Code::kUnsupported);
  auto other_version = own;
  other_version[8] ^= std::byte{1};
  EXPECT_EQ(matmul->ImportChoices(other_version).status().code(), Code::kUnsupported);
  EXPECT_EQ(matmul->ImportChoices(std::span(own).first(own.size() - 1)).status().code(),
            Code::kCorrupt);
  EXPECT_EQ(matmul->ExportChoices(), own);
}

TEST_P(CudaMatMulTest, TuningTriesEachShapeOnceAndLeavesItsResultRight) {
  const auto matmul = Make();
  matmul->SetTuning(true);
  for (int pass = 0; pass < 2; ++pass) {
    CheckAllKinds(*matmul, {8, 24, 40});
    CheckAllKinds(*matmul, {16, 24, 40});
  }
  // int8 and fp8 add and bias behind the product.
  const int64_t shapes = HasScales(GetParam()) ? 2 : 4;
  EXPECT_EQ(matmul->counts().tuned, shapes);
  EXPECT_EQ(matmul->counts().heuristic_queries, 2 * shapes) << "one before, one for candidates";
  matmul->SetTuning(false);
  CheckAllKinds(*matmul, {24, 24, 40});
  EXPECT_EQ(matmul->counts().tuned, shapes);

  const auto later = Make();
  later->SetTuning(true);
  ASSERT_TRUE(later->ImportChoices(matmul->ExportChoices()).ok());
  CheckAllKinds(*later, {8, 24, 40});
  EXPECT_EQ(later->counts().heuristic_queries, 0) << "tried before";
  CheckAllKinds(*later, {24, 24, 40});
  EXPECT_GT(later->counts().heuristic_queries, 0) << "chosen before, but not tried";
}

TEST_P(CudaMatMulTest, TuningLeavesBatchInvarianceAlone) {
  MatMulOptions options = Options();
  options.batch_invariant = true;
  const auto matmul = Make(options);
  matmul->SetTuning(true);
  Check(*matmul, {8, 24, 40}, Kind::kPlain);
  EXPECT_EQ(matmul->counts().tuned, 0);
}

TEST_P(CudaMatMulTest, AnAlgorithmThatCannotBeRunIsNotChosen) {
  const auto matmul = Make();
  matmul->SetTuning(true);
  emulation::FailCall("cublasLtMatmul", cudaErrorLaunchOutOfResources);
  Check(*matmul, {8, 24, 40}, Kind::kPlain);
  emulation::TakeFault();
  EXPECT_EQ(matmul->counts().tuned, 1);
}

INSTANTIATE_TEST_SUITE_P(Encodings, CudaMatMulTest,
                         ::testing::Values(Encoding::kFloat32, Encoding::kBfloat16, Encoding::kInt8,
                                           Encoding::kFp8),
                         EncodingName);

TEST(CudaMatMulDevices, WhatTheDeviceCannotMultiplyIsRefused) {
  const auto code = [](int capability, Encoding encoding) {
    emulation::SetDevices(1, size_t{1} << 30, capability);
    const MatMulOptions options{encoding, false, 512, 1 << 20, 1 << 20};
    return CudaMatMul::Make(options, nullptr).status().code();
  };
  for (const Encoding encoding : {Encoding::kFloat32, Encoding::kBfloat16, Encoding::kInt8}) {
    EXPECT_EQ(code(75, encoding), Code::kUnsupported);
    EXPECT_EQ(code(80, encoding), Code::kOk);
  }
  EXPECT_EQ(code(80, Encoding::kFp8), Code::kUnsupported);
  EXPECT_EQ(code(86, Encoding::kFp8), Code::kUnsupported);
  for (const int capability : {89, 90, 100}) EXPECT_EQ(code(capability, Encoding::kFp8), Code::kOk);
}

}  // namespace
}  // namespace sysone
