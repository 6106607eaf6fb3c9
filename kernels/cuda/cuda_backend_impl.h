// The class behind kernels/cuda/cuda_backend.h, in a header of its own because its operations are in two files: what is loaded, made
// and run as a whole in cuda_backend.cc, the operations of a pass in cuda_operations.cc. A pass that runs as a whole finds its
// inputs in the pass block and may be recorded; an operation that is called by itself stages what it needs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention_tables.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/memory_budget.h"
#include "kernels/cuda/objects.h"
#include "kernels/cuda/pass_inputs.h"
#include "kernels/cuda/pass_results.h"
#include "kernels/cuda/recorded_passes.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/weight_loader.h"

namespace sysone {

// As Backend; one thread, on the device that was current when it was made.
class CudaBackend final : public Backend {
 public:
  // `encoding`: of products.
  CudaBackend(const BackendOptions& options, Encoding encoding, const CudaDevice& device);
  ~CudaBackend() override { stream_.Wait(); }
  // Once, first of all.
  Status MakeMatMul();

  std::string Describe() const override;

  std::unique_ptr<Weight> LoadWeight(int64_t out_cols, int64_t in_cols,
                                     const RowReader& reader) override;
  std::unique_ptr<Vector> LoadVector(std::span<const float> values) override;
  std::unique_ptr<Table> LoadTable(int64_t rows, int64_t cols, const RowReader& reader) override;
  std::unique_ptr<RopeTable> LoadRope(int32_t head_dim, std::span<const float> cos,
                                      std::span<const float> sin) override;

  std::unique_ptr<Tensor> NewTensor(int64_t max_rows, int64_t cols) override;
  std::unique_ptr<Operand> NewOperand(int64_t max_rows, int64_t cols) override;
  std::unique_ptr<KvStore> NewKvStore(int64_t rows, const AttentionShape& shape) override;
  int64_t KvRowBytes(const AttentionShape& shape) const override {
    return 2 * shape.kv_cols() * BytesOf(TableEncoding());
  }
  int64_t KvMemoryLeft(const AttentionShape& shape) const override;
  Status MemoryStatus() const override { return budget_.status(); }

  int32_t PassRows(int32_t count) const override;
  int32_t PassReads(int32_t count) const override;
  std::unique_ptr<RecordedPasses> NewRecordedPasses(std::function<bool(bool)> everyone) override {
    return options_.graphs ? std::make_unique<CudaRecordedPasses>(stream_, std::move(everyone))
                           : nullptr;
  }
  int32_t PassLabels(int32_t count, int32_t reads) const override;
  void RunPass(const PassInputs& inputs, const PassResults& results, RecordedPasses* recorded,
               const std::function<void()>& operations) override;

  ChoiceOrigin OriginOfChoices() const override;
  std::vector<std::byte> ExportChoices() const override { return matmul_->ExportChoices(); }
  Status ImportChoices(std::span<const std::byte> bytes) override;
  void SetTuning(bool on) override;
  std::string DescribeChoices() const override;

  void* Queue() const override { return stream_.get(); }

  void Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) override;
  void RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
               Operand& out) override;
  void MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
              Tensor& out) override;
  void MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) override;
  void NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                const Vector* q_norm, const Vector* k_norm, float eps,
                const PassPlan& plan) override;
  void StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
               KvStore& store) override;
  void NormRopeStoreKv(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                       const Vector* q_norm, const Vector* k_norm, float eps, const PassPlan& plan,
                       KvStore& store) override;
  void Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
              const KvStore& store, Operand& out) override;
  void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) override;
  void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) override;
  void FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                 Tensor& out) override;

  void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                   std::span<const TokenId> ids, std::span<float> out) override;
  void SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                     std::span<HeadSummary> out) override;
  void Clear(Tensor& x, RowRange rows) override;
  std::span<float> Memory(Tensor& x, RowRange rows) override;
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override;
  void Download(const Tensor& x, int32_t rows, std::span<float> out) override;

 private:
  // Of embedding, head, keys and values.
  Encoding TableEncoding() const {
    return encoding_ == Encoding::kFloat32 ? Encoding::kFloat32 : Encoding::kBfloat16;
  }
  // `count` values on the device, or none if they do not fit: then MemoryStatus says so.
  template <class T>
  DeviceArray<T> Make(int64_t count) {
    return budget_.Take(count * static_cast<int64_t>(sizeof(T))) ? DeviceArray<T>(count)
                                                                 : DeviceArray<T>();
  }
  DeviceArray<float> LoadFloats(std::span<const float> values);
  void ClearBytes(void* memory, int64_t bytes);

  // Where host memory of the caller lies on the device: with the inputs of the pass if it is one of them, else a copy.
  template <class T>
  const T* OnDevice(std::span<const T> values) {
    if (values.empty()) return nullptr;
    if (const T* found = in_pass_ ? inputs_.Find(values) : nullptr) return found;
    return std::get<0>(staging_.Put(values));
  }
  DevicePassInputs::Table TableOnDevice(const PassPlan& plan);

  const BackendOptions options_;
  const Encoding encoding_;  // of products
  const CudaDevice device_;
  MemoryBudget budget_;
  Stream stream_;
  Staging staging_;
  DevicePassInputs inputs_;
  DevicePassResults results_;
  bool in_pass_ = false;
  WeightLoader loader_;
  std::unique_ptr<CudaMatMul> matmul_;
  bool tuning_ = false;
  uint64_t choices_generation_ =
      0;  // passes that were recorded with other choices are recorded anew

  AttentionTables tables_;      // of an operation by itself
  std::vector<int32_t> words_;  // likewise
  // Rows of attention that are still to be encoded with a scale: as large as the largest operand, where operands have scales.
  DeviceArray<float> unscaled_;
  DeviceArray<std::byte> attention_parts_;  // AttentionCall::parts of the largest store
  uint64_t scratch_generation_ = 0;         // of these two
  DeviceArray<std::byte> summary_scratch_;  // grows
};

}  // namespace sysone
