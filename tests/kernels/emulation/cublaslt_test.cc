// The emulated cuBLASLt multiplies rightly, and refuses what the library refuses. And its 8-bit floats, and bfloat16, round as
// CUDA's do.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/kernels/emulation/emulation_fixture.h"

namespace sysone::emulation {
namespace {

struct Case {
  cudaDataType_t type;
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  bool bias;
  float beta;
};

// Small integers: exact in all types and in every order of the sums.
int ValueAt(int64_t i) { return static_cast<int>(i * 7 % 15) - 7; }

std::vector<unsigned char> Encode(cudaDataType_t type, int64_t count) {
  std::vector<unsigned char> bytes;
  const auto put = [&bytes](const auto& value) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof value);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(ValueAt(i));
    if (type == CUDA_R_32F) put(value);
    if (type == CUDA_R_16BF) put(__nv_bfloat16(value));
    if (type == CUDA_R_8I) put(static_cast<int8_t>(value));
    if (type == CUDA_R_8F_E4M3) put(__nv_fp8_e4m3(value));
  }
  return bytes;
}

// A product's descriptors, on the device's default stream.
class Call {
 public:
  explicit Call(const Case& the_case) : case_(the_case) {
    const bool integers = case_.type == CUDA_R_8I;
    const cudaDataType_t out = integers ? CUDA_R_32I : CUDA_R_32F;
    cublasLtCreate(&handle_);
    cublasLtMatmulDescCreate(&desc_, integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, out);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{case_.transpose_a});
    Set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t{case_.transpose_b});
    if (case_.bias) Set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS});
    Layout(a_, case_.type, case_.transpose_a ? case_.k : case_.m,
           case_.transpose_a ? case_.m : case_.k);
    Layout(b_, case_.type, case_.transpose_b ? case_.n : case_.k,
           case_.transpose_b ? case_.k : case_.n);
    Layout(d_, out, case_.m, case_.n);
    cublasLtMatmulPreferenceCreate(&preference_);
    const uint64_t workspace = uint64_t{1} << 20;
    cublasLtMatmulPreferenceSetAttribute(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
  }
  ~Call() {
    cublasLtMatmulPreferenceDestroy(preference_);
    for (const cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc_);
    cublasLtDestroy(handle_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, T value) {
    cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value);
  }

  std::vector<cublasLtMatmulHeuristicResult_t> Candidates() {
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    int count = 0;
    status_ = cublasLtMatmulAlgoGetHeuristic(handle_, desc_, a_, b_, d_, d_, preference_, 8,
                                             results.data(), &count);
    results.resize(static_cast<size_t>(count));
    return results;
  }
  cublasStatus_t status() const { return status_; }

  // The product as float, whatever it is; with `algo`.
  std::vector<float> Run(const cublasLtMatmulAlgo_t& algo, size_t workspace_bytes = 1 << 20) {
    const OnDevice<unsigned char> a(Encode(case_.type, case_.m * case_.k));
    const OnDevice<unsigned char> b(Encode(case_.type, case_.k * case_.n));
    const OnDevice<unsigned char> workspace(workspace_bytes);
    std::vector<float> bias(static_cast<size_t>(case_.m));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
    const OnDevice<float> device_bias(bias);
    if (case_.bias) Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, device_bias.data());
    const auto count = static_cast<size_t>(case_.m * case_.n);
    const auto multiply = [&]<class T>(std::vector<T> out) {
      const OnDevice<T> d(out);
      const T alpha = 1, beta = static_cast<T>(case_.beta);
      status_ = cublasLtMatmul(handle_, desc_, &alpha, a.data(), a_, b.data(), b_, &beta, d.data(),
                               d_, d.data(), d_, &algo, workspace.data(), workspace_bytes, nullptr);
      out = d.Read();
      return std::vector<float>(out.begin(), out.end());
    };
    if (case_.type == CUDA_R_8I) return multiply(std::vector<int32_t>(count, 3));
    return multiply(std::vector<float>(count, 3));
  }

  // In double.
  std::vector<float> Expected() const {
    std::vector<float> expected;
    for (int64_t col = 0; col < case_.n; ++col) {
      for (int64_t row = 0; row < case_.m; ++row) {
        double sum = case_.beta * 3 + (case_.bias ? static_cast<double>(row) : 0);
        for (int64_t k = 0; k < case_.k; ++k) {
          sum += ValueAt(case_.transpose_a ? row * case_.k + k : k * case_.m + row) *
                 ValueAt(case_.transpose_b ? k * case_.n + col : col * case_.k + k);
        }
        expected.push_back(static_cast<float>(sum));
      }
    }
    return expected;
  }

 private:
  void Layout(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t cols) {
    cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                               static_cast<uint64_t>(cols), rows);
  }

  Case case_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

class ProductTest : public EmulationFixture, public testing::WithParamInterface<Case> {};

TEST_P(ProductTest, IsThatOfPlainLoopsWithEveryAlgorithm) {
  Call call(GetParam());
  const auto candidates = call.Candidates();
  ASSERT_GE(candidates.size(), 3u);
  for (const auto& candidate : candidates) {
    EXPECT_EQ(call.Run(candidate.algo), call.Expected());
    EXPECT_EQ(call.status(), CUBLAS_STATUS_SUCCESS);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ProductTest,
                         testing::Values(Case{CUDA_R_32F, true, false, 17, 5, 131, false, 0},
                                         Case{CUDA_R_32F, false, false, 33, 4, 7, false, 1},
                                         Case{CUDA_R_32F, false, true, 16, 9, 64, true, 0},
                                         Case{CUDA_R_32F, true, true, 1, 1, 3, true, 1},
                                         Case{CUDA_R_16BF, true, false, 40, 33, 80, true, 0},
                                         Case{CUDA_R_16BF, true, false, 40, 300, 80, false, 1},
                                         Case{CUDA_R_8I, true, false, 20, 3, 144, false, 0},
                                         Case{CUDA_R_8I, true, false, 16, 40, 32, false, 1},
                                         Case{CUDA_R_8F_E4M3, true, false, 48, 6, 160, false, 0}));

using CublasLtTest = EmulationFixture;

TEST_F(CublasLtTest, RefusesWhatTheLibraryRefuses) {
  const auto refused = [](const Case& the_case) {
    Call call(the_case);
    return call.Candidates().empty() && call.status() == CUBLAS_STATUS_NOT_SUPPORTED;
  };
  EXPECT_TRUE(refused({CUDA_R_8I, true, false, 16, 4, 30, false, 0}));   // depth
  EXPECT_TRUE(refused({CUDA_R_8I, true, false, 18, 4, 32, false, 0}));   // width
  EXPECT_TRUE(refused({CUDA_R_8I, false, false, 16, 4, 32, false, 0}));  // not transposed
  EXPECT_TRUE(refused({CUDA_R_8I, true, false, 16, 4, 32, true, 0}));    // a bias
  EXPECT_TRUE(refused({CUDA_R_8F_E4M3, true, false, 16, 4, 24, false, 0}));
  EXPECT_TRUE(refused({CUDA_R_8F_E4M3, false, true, 16, 16, 32, false, 0}));
  EXPECT_FALSE(refused({CUDA_R_8F_E4M3, true, false, 16, 4, 32, false, 0}));
  SetDevices(1, 1 << 20, 80);
  EXPECT_TRUE(refused({CUDA_R_8F_E4M3, true, false, 16, 4, 32, false, 0}));
}

TEST_F(CublasLtTest, AlgorithmsDifferAndTheirBytesCanBeKept) {
  Call call({CUDA_R_16BF, true, false, 40, 4, 80, false, 0});
  std::set<std::vector<uint64_t>> seen;
  for (const auto& candidate : call.Candidates()) {
    cublasLtMatmulAlgo_t kept;
    std::memcpy(&kept, &candidate.algo, 64);
    seen.emplace(std::begin(kept.data), std::end(kept.data));
    EXPECT_EQ(call.Run(kept), call.Expected());
  }
  EXPECT_EQ(seen.size(), call.Candidates().size());
  call.Run(cublasLtMatmulAlgo_t{});
  EXPECT_EQ(call.status(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtTest, AnAlgorithmThatNeedsAWorkspaceFailsWithoutIt) {
  Call call({CUDA_R_32F, true, false, 40, 4, 80, false, 0});
  int in_need = 0;
  for (const auto& candidate : call.Candidates()) {
    if (candidate.workspaceSize == 0) continue;
    ++in_need;
    call.Run(candidate.algo, candidate.workspaceSize - 1);
    EXPECT_EQ(call.status(), CUBLAS_STATUS_INVALID_VALUE);
  }
  EXPECT_GT(in_need, 0);
}

TEST_F(CublasLtTest, E4m3RoundsToTheNearest) {
  // All codes but the two NaNs come back.
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    const float value = FromE4m3(static_cast<uint8_t>(code));
    EXPECT_EQ(RoundToE4m3(value, true), code) << value;
    // Half way to the next code, ties go to the even one.
    if ((code & 0x7F) < 0x7E) {
      const float half = (value + FromE4m3(static_cast<uint8_t>(code + 1))) / 2;
      EXPECT_EQ(RoundToE4m3(half, true), code % 2 == 0 ? code : code + 1) << half;
      EXPECT_EQ(RoundToE4m3(std::nextafter(half, value), true), code) << half;
    }
  }
  EXPECT_EQ(FromE4m3(0x7E), 448);
  EXPECT_EQ(RoundToE4m3(1e9f, true), 0x7E);
  EXPECT_EQ(RoundToE4m3(1e9f, false), 0x7F);
  EXPECT_EQ(RoundToE4m3(464, false), 0x7E);  // half way to 480, which is none
  EXPECT_EQ(RoundToE4m3(std::nextafter(464.0f, 500.0f), false), 0x7F);
  EXPECT_EQ(RoundToE4m3(std::nanf(""), true) & 0x7F, 0x7F);
}

TEST_F(CublasLtTest, Bfloat16RoundsToTheNearest) {
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(1.0f)), 0x3F80);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(0x1.01p0f)), 0x3F80);  // tie, to even
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(0x1.03p0f)), 0x3F82);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(0x1.010002p0f)), 0x3F81);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(0x1.FFp127f)), 0x7F80);
  EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(std::nanf(""))), 0x7FFF);
}

}  // namespace
}  // namespace sysone::emulation
