// The calls of the emulated cuBLASLt: descriptors, choice of algorithms, and what the library refuses.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "tests/kernels/emulation/cublaslt_product.h"
#include "tests/kernels/emulation/runtime_state.h"

using namespace sysone::emulation;

struct cublasLtContext {};
struct cublasLtMatrixLayoutOpaque_t {
  Matrix matrix;
};
struct cublasLtMatmulDescOpaque_t {
  int32_t compute = CUBLAS_COMPUTE_32F, scale = CUDA_R_32F, transpose_a = CUBLAS_OP_N,
          transpose_b = CUBLAS_OP_N, bias_type = -1;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace_bytes = 0;
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
};

namespace {

constexpr size_t kVersion = 130100;
constexpr uint64_t kMark = 0x456D756C61746564;  // in every algorithm

// Which values are summed apart from which: other ones give other bits.
struct Algorithm {
  uint32_t id, tile, split, scheme;
};
constexpr Algorithm kAlgorithms[] = {
    {66, 20, 1, CUBLASLT_REDUCTION_SCHEME_NONE},          // all of the depth in order
    {21, 15, 1, CUBLASLT_REDUCTION_SCHEME_NONE},          // by steps of kStep
    {67, 20, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},  // two halves; needs a workspace
    // Cuts that depend on how many columns there are ("stream-K"); says neither split nor scheme, but needs a workspace.
    {70, 24, 1, CUBLASLT_REDUCTION_SCHEME_NONE},
};
constexpr int64_t kStep = 64;

struct Call {
  const cublasLtMatmulDescOpaque_t& desc;
  const Matrix &a, &b, &c, &d;
  bool transpose_a() const { return desc.transpose_a != CUBLAS_OP_N; }
  bool transpose_b() const { return desc.transpose_b != CUBLAS_OP_N; }
  int64_t depth() const { return transpose_a() ? a.rows : a.cols; }
};

size_t WorkspaceOf(const Algorithm& algorithm, const Call& call) {
  if (algorithm.id == 67) return static_cast<size_t>(call.d.rows * call.d.cols) * 2 * 4;
  return algorithm.id == 70 ? 64 * 1024 : 0;
}

std::vector<int64_t> PartsOf(const Algorithm& algorithm, const Call& call) {
  const int64_t depth = call.depth();
  std::vector<int64_t> parts = {0};
  if (algorithm.id == 21) {
    for (int64_t at = kStep; at < depth; at += kStep) parts.push_back(at);
  }
  if (algorithm.id == 67 && depth > 1) parts.push_back(depth / 2);
  if (algorithm.id == 70 && depth > 1) parts.push_back(1 + call.d.cols % (depth - 1));
  return parts;
}

// In the order of the heuristics: as in the library, it depends on how many columns there are.
std::vector<Algorithm> Advised(const Call& call) {
  const auto [whole, steps, halves, cut] = kAlgorithms;
  if (call.d.cols <= 32) return {halves, whole, cut, steps};
  if (call.d.cols <= 256) return {cut, steps, whole, halves};
  return {whole, cut, steps};
}

cublasLtMatmulAlgo_t Encode(const Algorithm& algorithm, const Call& call) {
  cublasLtMatmulAlgo_t encoded = {};
  encoded.data[0] = kMark;
  encoded.data[1] = kVersion;
  encoded.data[2] = algorithm.id;
  encoded.data[3] = static_cast<uint64_t>(call.a.type);
  return encoded;
}

// Null: no algorithm of this library.
const Algorithm* Decode(const cublasLtMatmulAlgo_t* algo) {
  if (!algo || algo->data[0] != kMark || algo->data[1] != kVersion) return nullptr;
  const auto found = std::ranges::find(kAlgorithms, algo->data[2], &Algorithm::id);
  return found == std::end(kAlgorithms) ? nullptr : found;
}

// What is no product at all.
bool FitTogether(const Call& call) {
  const int64_t m = call.transpose_a() ? call.a.cols : call.a.rows;
  const int64_t b_depth = call.transpose_b() ? call.b.cols : call.b.rows;
  const int64_t n = call.transpose_b() ? call.b.rows : call.b.cols;
  const auto valid = [](const Matrix& matrix) {
    return matrix.rows > 0 && matrix.cols > 0 && matrix.ld >= matrix.rows;
  };
  return valid(call.a) && valid(call.b) && valid(call.c) && valid(call.d) && call.d.rows == m &&
         call.d.cols == n && b_depth == call.depth() && call.c.rows == m && call.c.cols == n &&
         call.c.ld == call.d.ld;
}

// What the device has no instructions for, or the library no kernel.
bool Supported(const Call& call) {
  const cublasLtMatmulDescOpaque_t& desc = call.desc;
  const bool bias = desc.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (!bias && desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false;
  if (call.a.type != call.b.type || call.c.type != call.d.type) return false;
  const bool tn = call.transpose_a() && !call.transpose_b();
  const auto multiples_of = [&](int64_t step) {
    return call.d.rows % step == 0 && call.depth() % step == 0 && call.a.ld % step == 0 &&
           call.b.ld % step == 0 && call.d.ld % step == 0;
  };
  const bool float_sums =
      desc.scale == CUDA_R_32F && call.d.type == CUDA_R_32F &&
      (desc.compute == CUBLAS_COMPUTE_32F || desc.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
       desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32);
  switch (call.a.type) {
    case CUDA_R_32F:
    case CUDA_R_16BF:
      return float_sums && (!bias || desc.bias_type == -1 || desc.bias_type == CUDA_R_32F);
    case CUDA_R_8F_E4M3:  // from compute capability 8.9 on; a bias would have to be bfloat16
      return float_sums && !bias && tn && multiples_of(16) && Settings().compute_capability >= 89;
    case CUDA_R_8I:
      return (desc.compute == CUBLAS_COMPUTE_32I || desc.compute == CUBLAS_COMPUTE_32I_PEDANTIC) &&
             desc.scale == CUDA_R_32I && call.d.type == CUDA_R_32I && !bias && tn &&
             multiples_of(4);
    default:
      return false;
  }
}

cublasStatus_t Check(const Call& call) {
  if (!FitTogether(call)) return CUBLAS_STATUS_INVALID_VALUE;
  return Supported(call) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// Whether the matrix lies in one allocation of the device, where its type wants it.
bool IsThere(const Matrix& matrix, const void* values) {
  const auto bytes =
      static_cast<size_t>(((matrix.cols - 1) * matrix.ld + matrix.rows) * BytesOf(matrix.type));
  const Memory memory = MemoryAt(values, bytes);
  if (memory == Memory::kBeyond) {
    ReportFault("a matrix of a product ends outside of its allocation");
    return false;
  }
  const uintptr_t alignment = matrix.type == CUDA_R_8F_E4M3 ? 16 : 4;
  return memory != Memory::kPageable && reinterpret_cast<uintptr_t>(values) % alignment == 0;
}

template <class T>
cublasStatus_t Set(T& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (Begin("cublasLtCreate")) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return kVersion; }
size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "another cublasStatus_t";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusName(status); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t{
      {type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return Set(layout->matrix.rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return Set(layout->matrix.cols, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return Set(layout->matrix.ld, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t;
  (*desc)->compute = compute;
  (*desc)->scale = scale;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return bytes == 1 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  uint32_t alignment = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(preference->workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(preference->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return Set(alignment, value, bytes);
    default:
      if (const cublasStatus_t status = Set(alignment, value, bytes)) return status;
      return std::has_single_bit(alignment) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  *count = 0;
  if (most <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  const Call call{*desc, a->matrix, b->matrix, c->matrix, d->matrix};
  if (const cublasStatus_t status = Check(call)) return status;
  for (const Algorithm& algorithm : Advised(call)) {
    const size_t workspace = WorkspaceOf(algorithm, call);
    const bool allowed = algorithm.scheme == 0 || (algorithm.scheme & preference->schemes) != 0;
    if (*count == most || !allowed || workspace > preference->workspace_bytes) continue;
    results[(*count)++] = {Encode(algorithm, call), workspace, CUBLAS_STATUS_SUCCESS, 1, {}};
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const Call call{*desc, a->matrix, b->matrix, c->matrix, d->matrix};
  const Algorithm* algorithm = Decode(algo);
  if (!algorithm || algo->data[3] != static_cast<uint64_t>(call.a.type)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (const cublasStatus_t status = Check(call)) return status;
  result->workspaceSize = WorkspaceOf(*algorithm, call);
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  const Algorithm* algorithm = Decode(algo);
  if (!algorithm || bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  const uint32_t values[] = {algorithm->id, algorithm->tile, algorithm->split, algorithm->scheme};
  const auto at = static_cast<size_t>(attribute);
  const uint32_t found = at < std::size(values) ? values[at] : 0;
  std::memcpy(value, &found, sizeof found);
  if (written) *written = sizeof found;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a_values, cublasLtMatrixLayout_t a, const void* b_values,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_values,
                              cublasLtMatrixLayout_t c, void* d_values, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (Begin("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Call call{*desc, a->matrix, b->matrix, c->matrix, d->matrix};
  cublasLtMatmulHeuristicResult_t needs = {};
  const cublasLtMatmulAlgo_t first = Encode(kAlgorithms[0], call);
  if (!algo) algo = &first;
  if (const auto status = cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, algo, &needs)) {
    return status;
  }
  if (needs.workspaceSize > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  if (needs.workspaceSize > 0 && (reinterpret_cast<uintptr_t>(workspace) % 256 != 0 ||
                                  MemoryAt(workspace, needs.workspaceSize) != Memory::kDevice)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Product product;
  product.a = call.a, product.b = call.b, product.d = call.d;
  product.transpose_a = call.transpose_a(), product.transpose_b = call.transpose_b();
  const bool integers = call.d.type == CUDA_R_32I;
  const auto scale = [integers](const void* value) {
    return integers ? static_cast<float>(*static_cast<const int32_t*>(value))
                    : *static_cast<const float*>(value);
  };
  product.alpha = scale(alpha), product.beta = scale(beta);
  if (!IsThere(call.a, a_values) || !IsThere(call.b, b_values) || !IsThere(call.d, d_values) ||
      (product.beta != 0 && !IsThere(call.c, c_values))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  product.a_values = a_values, product.b_values = b_values;
  product.c_values = c_values, product.d_values = d_values;
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS) {
    product.bias = static_cast<const float*>(desc->bias);
    if (!IsThere({CUDA_R_32F, call.d.rows, 1, call.d.rows}, desc->bias)) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  product.parts = PartsOf(*Decode(algo), call);
  if (Observed({.kind = Launched::Kind::kProduct})) return CUBLAS_STATUS_SUCCESS;
  const size_t needed = needs.workspaceSize;
  const cudaError_t error = Enqueue(stream, [product, workspace, needed] {
    if (needed > 0) std::memset(workspace, 0xFF, needed);  // whoever keeps something there loses it
    Multiply(product);
    return true;
  });
  return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
