// One matrix product as cuBLASLt sees it: descriptors of the operation and of the three matrices, made once for a shape. The only
// header that knows cuBLASLt.
//
//   ours, row-major         out [rows, out_cols] = x [rows, depth] · weight [out_cols, depth]ᵀ
//   cuBLASLt, column-major  D [m = out_cols, n = rows] = Aᵀ · B,  A = weight [k = depth, m],  B = x [k, n],  C = D
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul_choices.h"

// Aborts with call and reason: after its shapes were checked, cuBLASLt fails when the device does.
#define SYSONE_CUBLAS(call)                                                                   \
  do {                                                                                        \
    if (const cublasStatus_t status_ = (call); status_ != CUBLAS_STATUS_SUCCESS) [[unlikely]] \
      ::sysone::internal::LibraryCallFailed(__FILE__, __LINE__, #call,                        \
                                            cublasLtGetStatusString(status_));                \
  } while (false)

namespace sysone {

// Destroys what cuBLASLt made.
struct CublasLtDeleter {
  void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
template <class Pointer>
using CublasLtOwned = std::unique_ptr<std::remove_pointer_t<Pointer>, CublasLtDeleter>;

// Memory for partial sums, aligned to 256 bytes.
struct ProductWorkspace {
  void* memory = nullptr;
  size_t bytes = 0;
};

// Device pointers of one run.
struct ProductBuffers {
  const void* weight;
  const void* x;
  const float* bias;  // [out_cols]; null unless the shape has one
  void* out;          // float32; int32 for int8
};

// Of one shape with its exact number of rows. One thread; `handle` outlives it.
class ProductPlan {
 public:
  ProductPlan(cublasLtHandle_t handle, Encoding encoding, const ProductShape& shape);

  const ProductShape& shape() const { return shape_; }

  // What the heuristics advise, best first, `most` at most; algorithms that need no more than `workspace_bytes`. `whole_depth`:
  // only those in which one thread block sums all of a result (matmul.h). May be none.
  std::vector<cublasLtMatmulAlgo_t> Candidates(int most, size_t workspace_bytes,
                                               bool whole_depth) const;
  // Whether this product can be run so.
  bool Accepts(const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes) const;

  void SetAlgorithm(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }
  // out = x · weightᵀ (+ bias), or with `add` out += that.
  cublasStatus_t Run(const ProductBuffers& buffers, bool add, const ProductWorkspace& workspace,
                     cudaStream_t stream) const;

 private:
  cublasLtHandle_t handle_;
  Encoding encoding_;
  ProductShape shape_;
  CublasLtOwned<cublasLtMatmulDesc_t> operation_;
  CublasLtOwned<cublasLtMatrixLayout_t> weight_, x_, out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace sysone
