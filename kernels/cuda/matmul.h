// Matrix products of the CUDA backend, by cuBLASLt: one handle, one workspace, and for every shape the algorithm that was once
// chosen for it. Separate from the backend because of what it must not do: ask, allocate or wait in a pass.
//
// A product of a shape that was run before does no more than cublasLtMatmul and, for int8 and fp8, one kernel that scales the
// sums out: all of it may be captured. The first product of a shape asks cuBLASLt's heuristics (host work, some 100 µs), which
// may be done while a stream captures, too. Row counts above kExactRows share the choice of the next multiple of kRowStep.
//
// Same bits from run to run: cuBLASLt promises them for one version of the library, one model of the device and one algorithm. A
// row's bits may depend on how many rows there are, because the algorithm does, and on nothing else of the other rows. int8 is
// exact: its sums are integers, so the algorithm does not show.
//
// With batch_invariant there is one algorithm for each weight's shape, whatever the number of rows. It is the first of the
// heuristics' candidates for `invariant_rows` rows that sums over the depth within one thread block: no split over the depth, no
// reduction scheme, and no workspace, without which blocks cannot exchange partial sums (stream-K). It is checked with
// cublasLtMatmulAlgoCheck over few and many rows before it is taken. What is promised: the same kernel with the same tile runs
// for every row count, and there every result is a sum in the order of the depth. What cuBLASLt itself does not promise: that
// an element's place in a tile, or the tile's in the matrix, never shows in its bits. No kernel is known where they do;
// scripts/gpu_check compares bits on the device.
// Cost, estimated: a tile for 512 rows leaves most of the device idle where there are few rows, above all for narrow weights (a
// [1024, 3072] weight has 8 tiles of 128 columns for 132 processors, each of which reads about 50 GB/s): 2 to 4 times the time of
// those products up to 64 rows, next to nothing from 512 rows on.
//
// Threads: that of the backend. Device: the one that is current at Make.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/cuda/objects.h"

namespace sysone {

struct MatMulOptions {
  Encoding encoding = Encoding::kBfloat16;  // of both sides of all products
  bool batch_invariant = false;
  int32_t invariant_rows = 512;  // of a pass for which the one algorithm is chosen
  // For partial sums of cuBLASLt's algorithms; what its documentation advises for compute capability 9 and above.
  size_t workspace_bytes = size_t{32} << 20;
  // For sums that are to be scaled (int8, fp8 only); products that need more go in pieces of rows.
  size_t scratch_bytes = size_t{64} << 20;
};

// The products of one backend.
class CudaMatMul {
 public:
  static constexpr int64_t kExactRows = 512;
  static constexpr int64_t kRowStep = 128;

  // Everything goes to `stream`, which must outlive this. kUnsupported: the device does not multiply this encoding (fp8: from
  // compute capability 8.9 on, the others from 8.0).
  static Result<std::unique_ptr<CudaMatMul>> Make(const MatMulOptions& options,
                                                  cudaStream_t stream);
  // Of workspace and scratch, for the plan of the device's memory.
  static int64_t DeviceBytes(const MatMulOptions& options);
  // Of cuBLASLt as it was loaded: 130100 is 13.1.0.
  static size_t LibraryVersion();

  virtual ~CudaMatMul() = default;

  // out[r] = x[r] · Wᵀ (+ bias), r < rows; out.cols = weight.out_cols. No rows: nothing is done.
  virtual void Multiply(const CudaOperand& x, const CudaWeight& weight, const CudaVector* bias,
                        int32_t rows, CudaTensor& out) = 0;
  // sum[rows.first + i] += x[i] · Wᵀ
  virtual void MultiplyAdd(const CudaOperand& x, const CudaWeight& weight, RowRange rows,
                           CudaTensor& sum) = 0;

  // While on, the first product of a shape that is run outside of a capture tries the heuristics' first candidates on its own
  // buffers, the cache of the device emptied before each try, and keeps the fastest; this waits for the device. Shapes that have a
  // tuned choice keep it. The product's result is right all the same. No effect with batch_invariant.
  virtual void SetTuning(bool on) = 0;

  // All choices so far, in an order of their own: equal choices give equal bytes. Valid for the same version of cuBLASLt alone,
  // and of use on the same model of device.
  virtual std::vector<std::byte> ExportChoices() const = 0;
  // Takes them over, in place of own ones; what was captured before keeps the old ones. A choice for a shape that never comes
  // is of no consequence, one that cuBLASLt refuses here is passed over with a line in the log. Gives their number. kCorrupt,
  // kUnsupported (another version, another encoding or another value of batch_invariant): nothing was taken.
  virtual Result<int64_t> ImportChoices(std::span<const std::byte> bytes) = 0;

  struct Counts {
    int64_t heuristic_queries = 0;
    int64_t tuned = 0;     // shapes whose candidates were timed, here or before an export
    int64_t imported = 0;  // choices taken over
    int64_t shapes = 0;    // shapes run
  };
  virtual Counts counts() const = 0;

  // For the log: "cuBLASLt 13.1.0".
  virtual std::string Describe() const = 0;
};

}  // namespace sysone
