// The operations of a pass.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_backend_impl.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/readout_kernels.h"
#include "kernels/cuda/row_kernels.h"

namespace sysone {
namespace {

CudaTensor& Of(Tensor& x) { return static_cast<CudaTensor&>(x); }
const CudaTensor& Of(const Tensor& x) { return static_cast<const CudaTensor&>(x); }
CudaOperand& Of(Operand& x) { return static_cast<CudaOperand&>(x); }
const CudaOperand& Of(const Operand& x) { return static_cast<const CudaOperand&>(x); }
const CudaWeight& Of(const Weight& x) { return static_cast<const CudaWeight&>(x); }
const CudaVector& Of(const Vector& x) { return static_cast<const CudaVector&>(x); }
const CudaTable& Of(const Table& x) { return static_cast<const CudaTable&>(x); }
const CudaRope& Of(const RopeTable& x) { return static_cast<const CudaRope&>(x); }
CudaKvStore& Of(KvStore& x) { return static_cast<CudaKvStore&>(x); }
const CudaKvStore& Of(const KvStore& x) { return static_cast<const CudaKvStore&>(x); }

const float* ValuesOf(const Vector* x) { return x ? Of(*x).values.data() : nullptr; }
float* RowOf(const CudaTensor& x, int64_t row) { return x.values.data() + row * x.cols; }

void CheckProduct(const CudaOperand& x, const CudaWeight& weight, RowRange rows,
                  const CudaTensor& out) {
  SYSONE_CHECK(x.cols == weight.in_cols && out.cols == weight.out_cols && rows.first >= 0 &&
                   rows.count <= x.rows && rows.first + rows.count <= out.rows,
               "product shapes do not fit");
}

// Each is `least` or more and below `end`.
void CheckRows(std::span<const int32_t> which, int32_t least, int64_t end) {
  for (const int32_t row : which)
    SYSONE_CHECK(row >= least && row < end, "row %d of %lld", row, static_cast<long long>(end));
}

void CheckRope(const CudaTensor& qkv, const AttentionShape& shape, const CudaRope& rope,
               const PassPlan& plan) {
  SYSONE_CHECK(
      qkv.cols == shape.qkv_cols() && rope.head_dim == shape.head_dim && plan.rows() <= qkv.rows,
      "rope shapes do not fit");
  CheckRows(plan.positions, 0, rope.positions);
}

void CheckStore(const CudaTensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                const CudaKvStore& store) {
  SYSONE_CHECK(qkv.cols == shape.qkv_cols() && store.kv_heads == shape.kv_heads &&
                   store.head_dim == shape.head_dim && std::ssize(plan.kv_rows) <= qkv.rows,
               "store shapes do not fit");
  CheckRows(plan.kv_rows, kNoKvRow, store.rows);
}

KvRows RowsOf(const CudaKvStore& store, const int32_t* kv_rows) {
  return {store.encoding, store.keys.data(), store.values.data(), kv_rows};
}

}  // namespace

void CudaBackend::Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) {
  SYSONE_CHECK(Of(out).cols == Of(table).cols && std::ssize(ids) <= Of(out).rows,
               "shapes do not fit");
  CheckRows(ids, kNoToken, Of(table).rows);
  LaunchEmbed(RowsOf(Of(table)), OnDevice(ids), static_cast<int32_t>(ids.size()),
              Of(out).values.data(), stream_.get());
}

void CudaBackend::RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
                          Operand& out) {
  SYSONE_CHECK(Of(out).cols == Of(x).cols && Of(weight).size == Of(x).cols && rows.first >= 0 &&
                   rows.count <= Of(out).rows && rows.first + rows.count <= Of(x).rows,
               "norm shapes do not fit");
  LaunchRmsNorm(RowOf(Of(x), rows.first), Of(weight).values.data(), eps, rows.count,
                RowsOf(Of(out)), stream_.get());
}

void CudaBackend::MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
                         Tensor& out) {
  CheckProduct(Of(x), Of(weight), {0, rows}, Of(out));
  matmul_->Multiply(Of(x), Of(weight), bias ? &Of(*bias) : nullptr, rows, Of(out));
}

void CudaBackend::MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) {
  CheckProduct(Of(x), Of(weight), rows, Of(sum));
  matmul_->MultiplyAdd(Of(x), Of(weight), rows, Of(sum));
}

void CudaBackend::NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                           const Vector* q_norm, const Vector* k_norm, float eps,
                           const PassPlan& plan) {
  CheckRope(Of(qkv), shape, Of(rope), plan);
  LaunchNormRope(Of(qkv).values.data(), shape, {Of(rope).cos.data(), Of(rope).sin.data()},
                 ValuesOf(q_norm), ValuesOf(k_norm), eps, OnDevice(plan.positions), plan.rows(),
                 stream_.get());
}

void CudaBackend::StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                          KvStore& store) {
  CheckStore(Of(qkv), shape, plan, Of(store));
  LaunchStoreKv(Of(qkv).values.data(), shape, RowsOf(Of(store), OnDevice(plan.kv_rows)),
                static_cast<int32_t>(plan.kv_rows.size()), stream_.get());
}

void CudaBackend::NormRopeStoreKv(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                                  const Vector* q_norm, const Vector* k_norm, float eps,
                                  const PassPlan& plan, KvStore& store) {
  CheckRope(Of(qkv), shape, Of(rope), plan);
  CheckStore(Of(qkv), shape, plan, Of(store));
  const int32_t* const positions = in_pass_ ? inputs_.Find(plan.positions) : nullptr;
  const int32_t* const kv_rows = in_pass_ ? inputs_.Find(plan.kv_rows) : nullptr;
  if (!positions || !kv_rows) {
    NormRope(qkv, shape, rope, q_norm, k_norm, eps, plan);
    StoreKv(qkv, shape, plan, store);
    return;
  }
  LaunchNormRopeStoreKv(Of(qkv).values.data(), shape, {Of(rope).cos.data(), Of(rope).sin.data()},
                        ValuesOf(q_norm), ValuesOf(k_norm), eps, positions,
                        RowsOf(Of(store), kv_rows), plan.rows(), stream_.get());
}

DevicePassInputs::Table CudaBackend::TableOnDevice(const PassPlan& plan) {
  if (in_pass_)
    if (const auto table = inputs_.FindTable(plan); table.words) return table;
  const AttentionLimits limits = LimitsOf(plan);
  words_.resize(static_cast<size_t>(AttentionLayout(limits).words));
  tables_.Write(plan, limits, words_);
  return {std::get<0>(staging_.Put(std::span<const int32_t>(words_))), limits};
}

void CudaBackend::Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                         const KvStore& store, Operand& out) {
  SYSONE_CHECK(Of(qkv).cols == shape.qkv_cols() && Of(out).cols == shape.q_cols() &&
                   Of(store).kv_heads == shape.kv_heads && Of(store).head_dim == shape.head_dim &&
                   plan.rows() <= Of(qkv).rows && plan.rows() <= Of(out).rows,
               "attention shapes do not fit");
  if (plan.rows() == 0) return;
  const DevicePassInputs::Table table = TableOnDevice(plan);
  LaunchAttention({.shape = shape,
                   .qkv = Of(qkv).values.data(),
                   .store = &Of(store),
                   .table = table.words,
                   .limits = table.limits,
                   .rows = plan.rows(),
                   .out = RowsOf(Of(out)),
                   .scratch = HasScales(encoding_) ? unscaled_.data() : nullptr,
                   .parts = attention_parts_.data()},
                  device_.multiprocessors, stream_.get());
}

void CudaBackend::GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) {
  SYSONE_CHECK(
      Of(gate_up).cols == 2 * Of(out).cols && rows <= Of(out).rows && rows <= Of(gate_up).rows,
      "gate shapes do not fit");
  LaunchGatedSilu(Of(gate_up).values.data(), rows, RowsOf(Of(out)), stream_.get());
}

void CudaBackend::SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) {
  SYSONE_CHECK(Of(x).cols == Of(out).cols && std::ssize(rows) <= Of(out).rows, "shapes do not fit");
  CheckRows(rows, 0, Of(x).rows);
  LaunchSelectRows(Of(x).values.data(), OnDevice(rows), Of(x).cols,
                   static_cast<int32_t>(rows.size()), Of(out).values.data(), stream_.get());
}

void CudaBackend::FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                            Tensor& out) {
  SYSONE_CHECK(Of(x).cols == Of(out).cols && Of(weight).size == Of(x).cols &&
                   rows <= Of(out).rows && rows <= Of(x).rows,
               "norm shapes do not fit");
  LaunchRmsNorm(Of(x).values.data(), Of(weight).values.data(), eps, rows,
                RowsOf(Of(out).values.data(), Of(out).cols), stream_.get());
}

void CudaBackend::LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                              std::span<const TokenId> ids, std::span<float> out) {
  SYSONE_CHECK(
      Of(head).cols == Of(x).cols && row_of.size() == ids.size() && out.size() >= ids.size(),
      "label shapes do not fit");
  if (ids.empty()) return;
  CheckRows(row_of, 0, Of(x).rows);
  CheckRows(ids, kNoToken, Of(head).rows);
  const auto count = static_cast<int32_t>(ids.size());
  if (float* const wanted = in_pass_ ? results_.Find(out) : nullptr) {
    const int32_t* const rows = inputs_.Find(row_of);
    const TokenId* const labels = inputs_.Find(ids);
    SYSONE_CHECK(rows && labels, "a pass reads labels that are none of its inputs");
    return LaunchLabelLogits(Of(x).values.data(), RowsOf(Of(head)), rows, labels, count, wanted,
                             stream_.get());
  }
  const auto [device_rows, device_ids] = staging_.Put(row_of, ids);
  float* const logits = staging_.Results<float>(ids.size());
  LaunchLabelLogits(Of(x).values.data(), RowsOf(Of(head)), device_rows, device_ids, count, logits,
                    stream_.get());
  stream_.Wait();
  std::copy_n(logits, ids.size(), out.data());
}

void CudaBackend::SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                                std::span<HeadSummary> out) {
  SYSONE_CHECK(Of(head).cols == Of(x).cols && rows <= Of(x).rows && rows <= std::ssize(out) &&
                   Of(head).rows > 0,
               "head shapes do not fit");
  if (rows == 0) return;
  const int64_t scratch = SummarizeHeadScratchBytes(Of(head).rows, rows);
  if (scratch > summary_scratch_.count()) summary_scratch_ = DeviceArray<std::byte>(scratch);
  auto* const summaries = staging_.Results<HeadSummary>(static_cast<size_t>(rows));
  LaunchSummarizeHead(Of(x).values.data(), RowsOf(Of(head)), rows, summary_scratch_.data(),
                      summaries, stream_.get());
  stream_.Wait();
  std::copy_n(summaries, rows, out.data());
}

void CudaBackend::Clear(Tensor& x, RowRange rows) {
  const std::span<float> memory = Memory(x, rows);
  LaunchClear(memory.data(), std::ssize(memory), stream_.get());
}

std::span<float> CudaBackend::Memory(Tensor& x, RowRange rows) {
  SYSONE_CHECK(rows.first >= 0 && rows.first + rows.count <= Of(x).rows, "rows do not fit");
  return {RowOf(Of(x), rows.first), static_cast<size_t>(rows.count * Of(x).cols)};
}

void CudaBackend::Upload(std::span<const float> values, int32_t rows, Tensor& out) {
  const int64_t count = rows * Of(out).cols;
  SYSONE_CHECK(rows <= Of(out).rows && count <= std::ssize(values), "shapes do not fit");
  staging_.Put(std::as_bytes(values.first(static_cast<size_t>(count))), Of(out).values.data());
}

void CudaBackend::Download(const Tensor& x, int32_t rows, std::span<float> out) {
  const int64_t count = rows * Of(x).cols;
  SYSONE_CHECK(rows <= Of(x).rows && count <= std::ssize(out), "shapes do not fit");
  if (float* const wanted = in_pass_ ? results_.Find(out) : nullptr) {
    SYSONE_CUDA(cudaMemcpyAsync(wanted, Of(x).values.data(),
                                static_cast<size_t>(count) * sizeof(float), cudaMemcpyDeviceToHost,
                                stream_.get()));
    return;
  }
  staging_.Get(Of(x).values.data(), std::as_writable_bytes(out.first(static_cast<size_t>(count))));
}

}  // namespace sysone
