// A backend that passes every call on to another one and adds up how long each kind of operation took.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace sysone {

class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(Backend& inner) : inner_(inner) {}

  // Milliseconds by operation since the last Clear.
  const std::map<std::string, double>& times() const { return times_; }
  void Clear() { times_.clear(); }

  std::string Describe() const override { return inner_.Describe(); }
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
    Time("Embed", [&] { inner_.Embed(table, ids, out); });
  }
  void RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
               Operand& out) override {
    Time("RmsNorm", [&] { inner_.RmsNorm(x, weight, eps, rows, out); });
  }
  void MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
              Tensor& out) override {
    Time("MatMul", [&] { inner_.MatMul(x, weight, bias, rows, out); });
  }
  void MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) override {
    Time("MatMulAdd", [&] { inner_.MatMulAdd(x, weight, rows, sum); });
  }
  void NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                const Vector* q_norm, const Vector* k_norm, float eps,
                const PassPlan& plan) override {
    Time("NormRope", [&] { inner_.NormRope(qkv, shape, rope, q_norm, k_norm, eps, plan); });
  }
  void StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
               KvStore& store) override {
    Time("StoreKv", [&] { inner_.StoreKv(qkv, shape, plan, store); });
  }
  void Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
              const KvStore& store, Operand& out) override {
    Time("Attend", [&] { inner_.Attend(qkv, shape, plan, store, out); });
  }
  void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) override {
    Time("GatedSilu", [&] { inner_.GatedSilu(gate_up, rows, out); });
  }
  void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) override {
    Time("SelectRows", [&] { inner_.SelectRows(x, rows, out); });
  }
  void FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                 Tensor& out) override {
    Time("FinalNorm", [&] { inner_.FinalNorm(x, weight, eps, rows, out); });
  }
  void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                   std::span<const TokenId> ids, std::span<float> out) override {
    Time("LabelLogits", [&] { inner_.LabelLogits(x, head, row_of, ids, out); });
  }
  void SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                     std::span<HeadSummary> out) override {
    Time("SummarizeHead", [&] { inner_.SummarizeHead(x, head, rows, out); });
  }
  void Clear(Tensor& x, RowRange rows) override {
    Time("Clear", [&] { inner_.Clear(x, rows); });
  }
  std::span<float> Memory(Tensor& x, RowRange rows) override { return inner_.Memory(x, rows); }
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override {
    Time("Upload", [&] { inner_.Upload(values, rows, out); });
  }
  void Download(const Tensor& x, int32_t rows, std::span<float> out) override {
    Time("Download", [&] { inner_.Download(x, rows, out); });
  }

 private:
  template <class Call>
  void Time(const char* name, const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    times_[name] +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  }

  Backend& inner_;
  std::map<std::string, double> times_;
};

}  // namespace sysone
