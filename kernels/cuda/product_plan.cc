// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product_plan.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace sysone {
namespace {

constexpr uintptr_t kAlignment = 256;  // bytes, of what is allocated on the device

struct Types {
  cublasComputeType_t compute;
  cudaDataType_t scale, in, out;
};

Types TypesOf(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFloat32:
      // Not CUBLAS_COMPUTE_32F_FAST_TF32, which drops 13 bits of each side.
      return {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F};
    case Encoding::kBfloat16:
      return {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F};
    case Encoding::kInt8:
      return {CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_32I};
    case Encoding::kFp8:
      return {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8F_E4M3, CUDA_R_32F};
  }
  SYSONE_CHECK(false, "encoding %d", static_cast<int>(encoding));
}

CublasLtOwned<cublasLtMatrixLayout_t> Layout(cudaDataType_t type, int64_t height, int64_t width) {
  cublasLtMatrixLayout_t layout;
  SYSONE_CUBLAS(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(height),
                                           static_cast<uint64_t>(width), height));
  return CublasLtOwned<cublasLtMatrixLayout_t>(layout);
}

template <class T>
void Set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t what, T value) {
  SYSONE_CUBLAS(cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value));
}
template <class T>
void Set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
         T value) {
  SYSONE_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
}

CublasLtOwned<cublasLtMatmulDesc_t> Operation(const Types& types, bool bias) {
  cublasLtMatmulDesc_t operation;
  SYSONE_CUBLAS(cublasLtMatmulDescCreate(&operation, types.compute, types.scale));
  CublasLtOwned<cublasLtMatmulDesc_t> owned(operation);
  Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T));
  Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(CUBLAS_OP_N));
  if (bias) {
    Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS));
    Set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(CUDA_R_32F));
    // For the heuristics, which look at its alignment alone: that of all vectors.
    Set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(kAlignment));
  }
  return owned;
}

// What the address of any row of the result is a multiple of: the rows of a sum may begin at any.
uint32_t RowAlignment(int64_t out_cols) {
  const auto bytes = static_cast<uint64_t>(out_cols) * sizeof(float);
  return static_cast<uint32_t>(std::min<uint64_t>(bytes & -bytes, kAlignment));
}

// What an algorithm is set to, 0 where it has no such setting.
uint32_t ConfigOf(const cublasLtMatmulAlgo_t& algorithm,
                  cublasLtMatmulAlgoConfigAttributes_t what) {
  uint32_t value = 0;
  size_t written = 0;
  const auto status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, what, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

bool SumsInOneBlock(const cublasLtMatmulHeuristicResult_t& result) {
  return result.workspaceSize == 0 && ConfigOf(result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 &&
         ConfigOf(result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) ==
             CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

ProductPlan::ProductPlan(cublasLtHandle_t handle, Encoding encoding, const ProductShape& shape)
    : handle_(handle), encoding_(encoding), shape_(shape) {
  const Types types = TypesOf(encoding);
  operation_ = Operation(types, shape.bias);
  weight_ = Layout(types.in, shape.depth, shape.out_cols);
  x_ = Layout(types.in, shape.depth, shape.rows);
  out_ = Layout(types.out, shape.out_cols, shape.rows);
}

std::vector<cublasLtMatmulAlgo_t> ProductPlan::Candidates(int most, size_t workspace_bytes,
                                                          bool whole_depth) const {
  cublasLtMatmulPreference_t preference;
  SYSONE_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
  const CublasLtOwned<cublasLtMatmulPreference_t> owned(preference);
  Set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes});
  if (whole_depth)
    Set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  const uint32_t alignment = RowAlignment(shape_.out_cols);
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  Set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const auto status =
      cublasLtMatmulAlgoGetHeuristic(handle_, operation_.get(), weight_.get(), x_.get(), out_.get(),
                                     out_.get(), preference, most, results.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> candidates;
  if (status != CUBLAS_STATUS_SUCCESS) return candidates;
  results.resize(static_cast<size_t>(found));
  for (const auto& result : results)
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes &&
        (!whole_depth || SumsInOneBlock(result)))
      candidates.push_back(result.algo);
  return candidates;
}

bool ProductPlan::Accepts(const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_, operation_.get(), weight_.get(), x_.get(), out_.get(),
                                 out_.get(), &algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace_bytes;
}

cublasStatus_t ProductPlan::Run(const ProductBuffers& buffers, bool add,
                                const ProductWorkspace& workspace, cudaStream_t stream) const {
  // Read when the call is made, not when it is done.
  const float float_one = 1, float_beta = add ? 1 : 0;
  const int32_t int_one = 1, int_beta = add ? 1 : 0;
  const bool integers = encoding_ == Encoding::kInt8;
  const void* const one = integers ? static_cast<const void*>(&int_one) : &float_one;
  const void* const beta = integers ? static_cast<const void*>(&int_beta) : &float_beta;
  if (shape_.bias) Set(operation_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, buffers.bias);
  return cublasLtMatmul(handle_, operation_.get(), one, buffers.weight, weight_.get(), buffers.x,
                        x_.get(), beta, buffers.out, out_.get(), buffers.out, out_.get(),
                        &algorithm_, workspace.memory, workspace.bytes, stream);
}

}  // namespace sysone
