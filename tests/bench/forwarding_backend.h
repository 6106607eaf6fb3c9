// A backend that passes every call on to another one; what is derived from it looks at the operations on their way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace sysone {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner) {}

  std::string Describe() const override { return inner_.Describe(); }
  void SetWeightGrain(WeightGrain grain) override { inner_.SetWeightGrain(grain); }
  std::unique_ptr<Weight> LoadWeight(int64_t out_cols, int64_t in_cols,
                                     const RowReader& reader) override {
    return inner_.LoadWeight(out_cols, in_cols, reader);
  }
  std::unique_ptr<Vector> LoadVector(std::span<const float> values) override {
    return inner_.LoadVector(values);
  }
  std::unique_ptr<Table> LoadTable(int64_t rows, int64_t cols, const RowReader& reader) override {
    return inner_.LoadTable(rows, cols, reader);
  }
  std::unique_ptr<RopeTable> LoadRope(int32_t head_dim, std::span<const float> cos,
                                      std::span<const float> sin) override {
    return inner_.LoadRope(head_dim, cos, sin);
  }
  std::unique_ptr<Tensor> NewTensor(int64_t max_rows, int64_t cols) override {
    return inner_.NewTensor(max_rows, cols);
  }
  std::unique_ptr<Operand> NewOperand(int64_t max_rows, int64_t cols) override {
    return inner_.NewOperand(max_rows, cols);
  }
  std::unique_ptr<KvStore> NewKvStore(int64_t rows, const AttentionShape& shape) override {
    return inner_.NewKvStore(rows, shape);
  }
  int64_t KvRowBytes(const AttentionShape& shape) const override {
    return inner_.KvRowBytes(shape);
  }

  void Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) override {
    Around("Embed", [&] { inner_.Embed(table, ids, out); });
  }
  void RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
               Operand& out) override {
    Around("RmsNorm", [&] { inner_.RmsNorm(x, weight, eps, rows, out); });
  }
  void MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
              Tensor& out) override {
    Around("MatMul", [&] { inner_.MatMul(x, weight, bias, rows, out); });
  }
  void MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) override {
    Around("MatMulAdd", [&] { inner_.MatMulAdd(x, weight, rows, sum); });
  }
  void NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                const Vector* q_norm, const Vector* k_norm, float eps,
                const PassPlan& plan) override {
    Around("NormRope", [&] { inner_.NormRope(qkv, shape, rope, q_norm, k_norm, eps, plan); });
  }
  void StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
               KvStore& store) override {
    Around("StoreKv", [&] { inner_.StoreKv(qkv, shape, plan, store); });
  }
  void NormRopeStoreKv(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                       const Vector* q_norm, const Vector* k_norm, float eps, const PassPlan& plan,
                       KvStore& store) override {
    Around("NormRopeStoreKv",
           [&] { inner_.NormRopeStoreKv(qkv, shape, rope, q_norm, k_norm, eps, plan, store); });
  }
  void Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
              const KvStore& store, Operand& out) override {
    Around("Attend", [&] { inner_.Attend(qkv, shape, plan, store, out); });
  }
  void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) override {
    Around("GatedSilu", [&] { inner_.GatedSilu(gate_up, rows, out); });
  }
  void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) override {
    Around("SelectRows", [&] { inner_.SelectRows(x, rows, out); });
  }
  void FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                 Tensor& out) override {
    Around("FinalNorm", [&] { inner_.FinalNorm(x, weight, eps, rows, out); });
  }
  void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                   std::span<const TokenId> ids, std::span<float> out) override {
    Around("LabelLogits", [&] { inner_.LabelLogits(x, head, row_of, ids, out); });
  }
  void SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                     std::span<HeadSummary> out) override {
    Around("SummarizeHead", [&] { inner_.SummarizeHead(x, head, rows, out); });
  }
  void Clear(Tensor& x, RowRange rows) override {
    Around("Clear", [&] { inner_.Clear(x, rows); });
  }
  std::span<float> Memory(Tensor& x, RowRange rows) override { return inner_.Memory(x, rows); }
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override {
    Around("Upload", [&] { inner_.Upload(values, rows, out); });
  }
  void Download(const Tensor& x, int32_t rows, std::span<float> out) override {
    Around("Download", [&] { inner_.Download(x, rows, out); });
  }

  int64_t KvMemoryLeft(const AttentionShape& shape) const override {
    return inner_.KvMemoryLeft(shape);
  }
  Status MemoryStatus() const override { return inner_.MemoryStatus(); }
  int32_t PassRows(int32_t count) const override { return inner_.PassRows(count); }
  int32_t PassReads(int32_t count) const override { return inner_.PassReads(count); }
  std::unique_ptr<RecordedPasses> NewRecordedPasses(std::function<bool(bool)> everyone) override {
    return inner_.NewRecordedPasses(std::move(everyone));
  }
  int32_t PassLabels(int32_t count, int32_t reads) const override {
    return inner_.PassLabels(count, reads);
  }
  void RunPass(const PassInputs& inputs, const PassResults& results, RecordedPasses* recorded,
               const std::function<void()>& operations) override {
    inner_.RunPass(inputs, results, recorded, operations);
  }
  void* Queue() const override { return inner_.Queue(); }

 protected:
  // Calls `call`, which is the operation of the other backend.
  virtual void Around(const char* operation, const std::function<void()>& call) {
    static_cast<void>(operation);
    call();
  }

 private:
  Backend& inner_;
};

}  // namespace sysone
