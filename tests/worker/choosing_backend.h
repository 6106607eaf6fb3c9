// The reference backend, but one that pads passes to a few sizes and has choices to make: for tests of what is done before the
// first client. A choice is the number of rows of a pass that was run; tuning makes it a tuned one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"

namespace sysone {

class ChoosingBackend final : public Backend {
 public:
  ChoosingBackend() {
    BackendOptions options;
    options.name = "reference";
    options.dtype = "float32";
    options.threads = 1;
    auto made = MakeBackend(options);
    SYSONE_CHECK(made.ok(), "%s", made.status().message().c_str());
    backend_ = *std::move(made);
  }

  // What happened, in order: {rows, reads} of each pass, negative while tuning.
  std::vector<std::pair<int32_t, int32_t>> passes;
  std::string driver = "13.0";
  bool refuses = false;  // choices of others

  int32_t PassRows(int32_t count) const override {
    for (const int32_t rows : {4, 8, 16})
      if (count <= rows) return rows;
    return count;
  }
  int32_t PassReads(int32_t count) const override { return count <= 1 ? 1 : (count + 1) / 2 * 2; }
  void RunPass(const PassInputs& inputs, RecordedPasses*,
               const std::function<void()>& operations) override {
    const auto rows = static_cast<int32_t>(inputs.tokens.size());
    const auto reads = static_cast<int32_t>(inputs.read_rows.size());
    passes.emplace_back(tuning_ ? -rows : rows, reads);
    auto& tuned = tuned_[rows];
    tuned = tuned || tuning_;
    operations();
  }

  ChoiceOrigin OriginOfChoices() const override { return {"a device", {{"driver", driver}}}; }
  std::vector<std::byte> ExportChoices() const override {
    std::vector<std::byte> bytes;
    for (const auto& [rows, tuned] : tuned_) {
      bytes.push_back(static_cast<std::byte>(rows));
      bytes.push_back(static_cast<std::byte>(tuned));
    }
    return bytes;
  }
  Status ImportChoices(std::span<const std::byte> bytes) override {
    if (refuses) return Error(Code::kUnsupported, "not mine");
    for (size_t i = 0; i < bytes.size(); i += 2)
      tuned_[static_cast<int32_t>(bytes[i])] = bytes[i + 1] == std::byte{1};
    return {};
  }
  void SetTuning(bool on) override { tuning_ = on; }
  std::string DescribeChoices() const override {
    const auto tuned =
        std::ranges::count_if(tuned_, [](const auto& entry) { return entry.second; });
    return std::to_string(tuned_.size()) + " products, " + std::to_string(tuned) + " tuned";
  }

  std::string Describe() const override { return backend_->Describe(); }
  std::unique_ptr<Weight> LoadWeight(int64_t out, int64_t in, const RowReader& r) override {
    return backend_->LoadWeight(out, in, r);
  }
  std::unique_ptr<Vector> LoadVector(std::span<const float> v) override {
    return backend_->LoadVector(v);
  }
  std::unique_ptr<Table> LoadTable(int64_t rows, int64_t cols, const RowReader& r) override {
    return backend_->LoadTable(rows, cols, r);
  }
  std::unique_ptr<RopeTable> LoadRope(int32_t dim, std::span<const float> cos,
                                      std::span<const float> sin) override {
    return backend_->LoadRope(dim, cos, sin);
  }
  std::unique_ptr<Tensor> NewTensor(int64_t rows, int64_t cols) override {
    return backend_->NewTensor(rows, cols);
  }
  std::unique_ptr<Operand> NewOperand(int64_t rows, int64_t cols) override {
    return backend_->NewOperand(rows, cols);
  }
  std::unique_ptr<KvStore> NewKvStore(int64_t rows, const AttentionShape& s) override {
    return backend_->NewKvStore(rows, s);
  }
  int64_t KvRowBytes(const AttentionShape& s) const override { return backend_->KvRowBytes(s); }
  void Embed(const Table& t, std::span<const TokenId> ids, Tensor& out) override {
    backend_->Embed(t, ids, out);
  }
  void RmsNorm(const Tensor& x, const Vector& w, float eps, RowRange rows, Operand& out) override {
    backend_->RmsNorm(x, w, eps, rows, out);
  }
  void MatMul(const Operand& x, const Weight& w, const Vector* bias, int32_t rows,
              Tensor& out) override {
    backend_->MatMul(x, w, bias, rows, out);
  }
  void MatMulAdd(const Operand& x, const Weight& w, RowRange rows, Tensor& sum) override {
    backend_->MatMulAdd(x, w, rows, sum);
  }
  void NormRope(Tensor& qkv, const AttentionShape& s, const RopeTable& rope, const Vector* q,
                const Vector* k, float eps, const PassPlan& plan) override {
    backend_->NormRope(qkv, s, rope, q, k, eps, plan);
  }
  void StoreKv(const Tensor& qkv, const AttentionShape& s, const PassPlan& plan,
               KvStore& store) override {
    backend_->StoreKv(qkv, s, plan, store);
  }
  void Attend(const Tensor& qkv, const AttentionShape& s, const PassPlan& plan,
              const KvStore& store, Operand& out) override {
    backend_->Attend(qkv, s, plan, store, out);
  }
  void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) override {
    backend_->GatedSilu(gate_up, rows, out);
  }
  void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) override {
    backend_->SelectRows(x, rows, out);
  }
  void FinalNorm(const Tensor& x, const Vector& w, float eps, int32_t rows, Tensor& out) override {
    backend_->FinalNorm(x, w, eps, rows, out);
  }
  void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                   std::span<const TokenId> ids, std::span<float> out) override {
    backend_->LabelLogits(x, head, row_of, ids, out);
  }
  void SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                     std::span<HeadSummary> out) override {
    backend_->SummarizeHead(x, head, rows, out);
  }
  void Clear(Tensor& x, RowRange rows) override { backend_->Clear(x, rows); }
  std::span<float> Memory(Tensor& x, RowRange rows) override { return backend_->Memory(x, rows); }
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override {
    backend_->Upload(values, rows, out);
  }
  void Download(const Tensor& x, int32_t rows, std::span<float> out) override {
    backend_->Download(x, rows, out);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::map<int32_t, bool> tuned_;  // by rows
  bool tuning_ = false;
};

}  // namespace sysone
