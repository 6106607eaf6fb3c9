// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul.h"

#include <algorithm>
#include <bit>
#include <map>

#include "base/log.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul_choices.h"
#include "kernels/cuda/product_plan.h"
#include "kernels/cuda/product_tuning.h"
#include "kernels/cuda/row_kernels.h"

namespace sysone {
namespace {

using AlgorithmBytes = decltype(ProductChoice::algorithm);
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(AlgorithmBytes));

constexpr int kCandidates = 8;            // that are timed
constexpr int kInvariantCandidates = 64;  // that are looked through for one that sums in one block
// Row counts at which the one algorithm has to be valid: few, all remainders of small tiles' widths, and many.
constexpr int32_t kProbedRows[] = {1,  2,  3,  4,  5,   7,   8,   9,   15,  16,   17,   24,
                                   31, 33, 48, 64, 100, 128, 200, 256, 384, 1000, 4096, 8192};

int DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  SYSONE_CUDA(cudaGetDevice(&device));
  SYSONE_CUDA(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

class CublasLtMatMul final : public CudaMatMul {
 public:
  CublasLtMatMul(const MatMulOptions& options, cudaStream_t stream)
      : options_(options),
        stream_(stream),
        choices_({LibraryVersion(), options.encoding, options.batch_invariant}),
        workspace_(static_cast<int64_t>(options.workspace_bytes)),
        scratch_(HasScales(options.encoding) ? static_cast<int64_t>(options.scratch_bytes) : 0) {
    cublasLtHandle_t handle;
    SYSONE_CUBLAS(cublasLtCreate(&handle));
    handle_.reset(handle);
  }

  void Multiply(const CudaOperand& x, const CudaWeight& weight, const CudaVector* bias,
                int32_t rows, CudaTensor& out) override {
    Check(x, weight, rows, {0, rows}, out);
    Product(x, weight, bias ? bias->values.data() : nullptr, rows, false, out.values.data());
  }

  void MultiplyAdd(const CudaOperand& x, const CudaWeight& weight, RowRange rows,
                   CudaTensor& sum) override {
    Check(x, weight, rows.count, rows, sum);
    Product(x, weight, nullptr, rows.count, true, sum.values.data() + rows.first * sum.cols);
  }

  void SetTuning(bool on) override { tuning_ = on && !options_.batch_invariant; }

  std::vector<std::byte> ExportChoices() const override { return choices_.Export(); }
  Result<int64_t> ImportChoices(std::span<const std::byte> bytes) override;

  Counts counts() const override {
    Counts counts = counts_;
    counts.shapes = std::ssize(plans_);
    for (const auto& [shape, choice] : choices_.all()) counts.tuned += choice.tuned;
    return counts;
  }

  std::string Describe() const override {
    const size_t version = LibraryVersion();
    return Format("cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
  }

 private:
  void Check(const CudaOperand& x, const CudaWeight& weight, int32_t rows, RowRange to,
             const CudaTensor& out) const;
  void Product(const CudaOperand& x, const CudaWeight& weight, const float* bias, int32_t rows,
               bool add, float* out);
  void ScaledProduct(const CudaOperand& x, const CudaWeight& weight, const float* bias,
                     int32_t rows, bool add, float* out);
  void Run(const ProductShape& shape, const ProductBuffers& buffers, bool add);

  ProductShape KeyOf(const ProductShape& shape) const;
  ProductPlan PlanOf(ProductShape shape, int64_t rows) const;
  cublasLtMatmulAlgo_t Choose(const ProductPlan& plan);
  cublasLtMatmulAlgo_t First(const ProductPlan& plan);
  cublasLtMatmulAlgo_t FirstForEveryRowCount(const ProductShape& shape);
  bool ValidForKey(const ProductShape& key, const cublasLtMatmulAlgo_t& algorithm) const;
  void Tune(ProductPlan& plan, const ProductBuffers& buffers, bool add);
  bool Capturing() const;

  ProductWorkspace workspace() const {
    return {workspace_.data(), options_.batch_invariant ? 0 : workspace_.bytes()};
  }

  const MatMulOptions options_;
  const cudaStream_t stream_;
  CublasLtOwned<cublasLtHandle_t> handle_;
  MatMulChoices choices_;
  std::map<ProductShape, ProductPlan> plans_;
  DeviceArray<std::byte> workspace_;
  DeviceArray<std::byte> scratch_;  // [rows, padded_out] of int32 or float32
  bool tuning_ = false;
  Counts counts_;
};

void CublasLtMatMul::Check(const CudaOperand& x, const CudaWeight& weight, int32_t rows,
                           RowRange to, const CudaTensor& out) const {
  SYSONE_CHECK(x.encoding == options_.encoding && weight.encoding == options_.encoding,
               "encodings %d and %d", static_cast<int>(x.encoding),
               static_cast<int>(weight.encoding));
  SYSONE_CHECK(x.stride == weight.stride && out.cols == weight.out_cols,
               "depths %lld and %lld, widths %lld and %lld", static_cast<long long>(x.stride),
               static_cast<long long>(weight.stride), static_cast<long long>(out.cols),
               static_cast<long long>(weight.out_cols));
  SYSONE_CHECK(rows >= 0 && rows <= x.rows && to.first >= 0 && to.first + to.count <= out.rows,
               "%d rows from %d on, of %lld and %lld", rows, to.first,
               static_cast<long long>(x.rows), static_cast<long long>(out.rows));
}

void CublasLtMatMul::Product(const CudaOperand& x, const CudaWeight& weight, const float* bias,
                             int32_t rows, bool add, float* out) {
  if (rows == 0) return;
  if (HasScales(x.encoding)) return ScaledProduct(x, weight, bias, rows, add, out);
  Run({weight.out_cols, rows, weight.stride, bias != nullptr},
      {weight.values.data(), x.values.data(), bias, out}, add);
}

// Sums of codes into the scratch, from there scaled to `out`; in as many pieces as the scratch asks for.
void CublasLtMatMul::ScaledProduct(const CudaOperand& x, const CudaWeight& weight,
                                   const float* bias, int32_t rows, bool add, float* out) {
  const int64_t width = weight.padded_out;
  const int64_t most = scratch_.count() / (width * int64_t{sizeof(float)});
  SYSONE_CHECK(most > 0, "%lld columns do not fit the scratch", static_cast<long long>(width));
  // Whole tiles, where a piece is longer than one.
  const auto piece =
      static_cast<int32_t>(std::min<int64_t>(most > 64 ? most / 64 * 64 : most, rows));
  for (int32_t first = 0; first < rows; first += piece) {
    const int32_t count = std::min(piece, rows - first);
    Run({width, count, weight.stride, false},
        {weight.values.data(), x.values.data() + first * x.stride, nullptr, scratch_.data()},
        false);
    const ScaledOut to{x.scales.data() + first, weight.scales.data(), bias, add,
                       out + first * weight.out_cols};
    if (x.encoding == Encoding::kInt8)
      LaunchScaleOut(reinterpret_cast<const int32_t*>(scratch_.data()), width, weight.out_cols,
                     count, to, stream_);
    else
      LaunchScaleOut(reinterpret_cast<const float*>(scratch_.data()), width, weight.out_cols, count,
                     to, stream_);
  }
}

void CublasLtMatMul::Run(const ProductShape& shape, const ProductBuffers& buffers, bool add) {
  auto found = plans_.find(shape);
  if (found == plans_.end()) {
    found = plans_.try_emplace(shape, PlanOf(shape, shape.rows)).first;
    found->second.SetAlgorithm(Choose(found->second));
  }
  ProductPlan& plan = found->second;
  if (tuning_ && !choices_.Find(KeyOf(shape))->tuned && !Capturing()) Tune(plan, buffers, add);
  SYSONE_CUBLAS(plan.Run(buffers, add, workspace(), stream_));
}

ProductPlan CublasLtMatMul::PlanOf(ProductShape shape, int64_t rows) const {
  shape.rows = rows;
  return ProductPlan(handle_.get(), options_.encoding, shape);
}

// Under which a shape's choice is kept.
ProductShape CublasLtMatMul::KeyOf(const ProductShape& shape) const {
  ProductShape key = shape;
  if (options_.batch_invariant)
    key.rows = kEveryRowCount;
  else if (shape.rows > kExactRows)
    key.rows = (shape.rows + kRowStep - 1) / kRowStep * kRowStep;
  return key;
}

cublasLtMatmulAlgo_t CublasLtMatMul::Choose(const ProductPlan& plan) {
  const ProductShape& shape = plan.shape();
  const ProductShape key = KeyOf(shape);
  if (choices_.Find(key) == nullptr) {
    const auto algorithm =
        options_.batch_invariant ? FirstForEveryRowCount(key) : First(PlanOf(key, key.rows));
    choices_.Set(key, {std::bit_cast<AlgorithmBytes>(algorithm), false});
  }
  const auto algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(choices_.Find(key)->algorithm);
  if (plan.Accepts(algorithm, workspace().bytes)) return algorithm;
  SYSONE_CHECK(!options_.batch_invariant,
               "cuBLASLt refuses the algorithm of [%lld, %lld] weights for %lld rows; serve "
               "without --batch-invariant",
               static_cast<long long>(shape.out_cols), static_cast<long long>(shape.depth),
               static_cast<long long>(shape.rows));
  return First(plan);  // the neighbours' is none of its own
}

cublasLtMatmulAlgo_t CublasLtMatMul::First(const ProductPlan& plan) {
  ++counts_.heuristic_queries;
  const auto candidates = plan.Candidates(1, workspace().bytes, false);
  const ProductShape& shape = plan.shape();
  SYSONE_CHECK(!candidates.empty(), "cuBLASLt cannot multiply %lld rows by [%lld, %lld] weights",
               static_cast<long long>(shape.rows), static_cast<long long>(shape.out_cols),
               static_cast<long long>(shape.depth));
  return candidates.front();
}

cublasLtMatmulAlgo_t CublasLtMatMul::FirstForEveryRowCount(const ProductShape& shape) {
  ++counts_.heuristic_queries;
  for (const auto& candidate :
       PlanOf(shape, options_.invariant_rows).Candidates(kInvariantCandidates, 0, true))
    if (ValidForKey(KeyOf(shape), candidate)) return candidate;
  SYSONE_CHECK(false,
               "cuBLASLt has no algorithm for [%lld, %lld] weights that serves all row counts; "
               "serve without --batch-invariant",
               static_cast<long long>(shape.out_cols), static_cast<long long>(shape.depth));
}

bool CublasLtMatMul::ValidForKey(const ProductShape& key,
                                 const cublasLtMatmulAlgo_t& algorithm) const {
  const auto valid = [&](int64_t rows) {
    return PlanOf(key, rows).Accepts(algorithm, workspace().bytes);
  };
  return key.rows == kEveryRowCount ? std::ranges::all_of(kProbedRows, valid) : valid(key.rows);
}

bool CublasLtMatMul::Capturing() const {
  cudaStreamCaptureStatus status;
  SYSONE_CUDA(cudaStreamIsCapturing(stream_, &status));
  return status != cudaStreamCaptureStatusNone;
}

Result<int64_t> CublasLtMatMul::ImportChoices(std::span<const std::byte> bytes) {
  SYSONE_ASSIGN_OR_RETURN(const MatMulChoices others, MatMulChoices::Parse(bytes));
  if (!(others.origin() == choices_.origin()))
    return Error(Code::kUnsupported,
                 "choices of products: they are of another version of cuBLASLt, another --dtype or "
                 "the other --batch-invariant");
  int64_t taken = 0;
  for (const auto& [shape, choice] : others.all()) {
    if (!ValidForKey(shape, std::bit_cast<cublasLtMatmulAlgo_t>(choice.algorithm))) continue;
    choices_.Set(shape, choice);
    ++taken;
  }
  if (taken < others.count())
    SYSONE_WARNING("%lld of %lld choices of products are refused by cuBLASLt on this device",
                   static_cast<long long>(others.count() - taken),
                   static_cast<long long>(others.count()));
  plans_.clear();
  counts_.imported += taken;
  return taken;
}

// Leaves the fastest candidate in the plan and in the choices.
void CublasLtMatMul::Tune(ProductPlan& plan, const ProductBuffers& buffers, bool add) {
  ++counts_.heuristic_queries;
  const auto candidates = plan.Candidates(kCandidates, workspace().bytes, false);
  const int best =
      FastestCandidate(TimeCandidates(plan, candidates, buffers, add, workspace(), stream_));
  SYSONE_CHECK(best >= 0, "none of %zu algorithms runs", candidates.size());
  const auto& algorithm = candidates[static_cast<size_t>(best)];
  plan.SetAlgorithm(algorithm);
  choices_.Set(KeyOf(plan.shape()), {std::bit_cast<AlgorithmBytes>(algorithm), true});
}

}  // namespace

Result<std::unique_ptr<CudaMatMul>> CudaMatMul::Make(const MatMulOptions& options,
                                                     cudaStream_t stream) {
  const int capability = DeviceAttribute(cudaDevAttrComputeCapabilityMajor) * 10 +
                         DeviceAttribute(cudaDevAttrComputeCapabilityMinor);
  const bool fp8 = options.encoding == Encoding::kFp8;
  if (capability < (fp8 ? 89 : 80))
    return Error(Code::kUnsupported, "the device has compute capability %d.%d, but %s needs %s; %s",
                 capability / 10, capability % 10, fp8 ? "--dtype fp8" : "sysone",
                 fp8 ? "8.9" : "8.0", fp8 ? "take --dtype bfloat16 or int8" : "take --device cpu");
  return std::unique_ptr<CudaMatMul>(std::make_unique<CublasLtMatMul>(options, stream));
}

int64_t CudaMatMul::DeviceBytes(const MatMulOptions& options) {
  return static_cast<int64_t>(options.workspace_bytes +
                              (HasScales(options.encoding) ? options.scratch_bytes : 0));
}

size_t CudaMatMul::LibraryVersion() { return cublasLtGetVersion(); }

}  // namespace sysone
