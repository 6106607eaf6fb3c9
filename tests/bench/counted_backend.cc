// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/counted_backend.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/objects.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

constexpr double kFloatBytes = 4;

double BytesOf(const CudaOperand& x, int64_t rows) {
  const double of_row =
      static_cast<double>(x.cols * BytesOf(x.encoding)) + (HasScales(x.encoding) ? kFloatBytes : 0);
  return static_cast<double>(rows) * of_row;
}
double BytesOf(const Operand& x, int64_t rows) {
  return BytesOf(static_cast<const CudaOperand&>(x), rows);
}
double BytesOf(const Tensor& x, int64_t rows) {
  return static_cast<double>(rows * static_cast<const CudaTensor&>(x).cols) * kFloatBytes;
}
double BytesOf(const Weight& weight) {
  const auto& own = static_cast<const CudaWeight&>(weight);
  return static_cast<double>(own.out_cols * own.in_cols * BytesOf(own.encoding)) +
         (HasScales(own.encoding) ? static_cast<double>(own.out_cols) * kFloatBytes : 0);
}
double RowBytesOf(const Table& table) {
  const auto& own = static_cast<const CudaTable&>(table);
  return static_cast<double>(own.cols * BytesOf(own.encoding));
}
double FlopsOf(const Weight& weight, int64_t rows) {
  const auto& own = static_cast<const CudaWeight&>(weight);
  return 2.0 * static_cast<double>(own.out_cols) * static_cast<double>(own.in_cols) *
         static_cast<double>(rows);
}
std::string ShapeOf(const Weight& weight) {
  const auto& own = static_cast<const CudaWeight&>(weight);
  return " " + std::to_string(own.out_cols) + " x " + std::to_string(own.in_cols);
}

}  // namespace

CountedBackend::CountedBackend(Backend& cuda) : ForwardingBackend(cuda) {
  emulation::ObserveLaunches([this](const emulation::Launched& launched) {
    using Kind = emulation::Launched::Kind;
    if (launched.kind == Kind::kCopy) {
      ++next_.copies;
    } else {
      next_.launches.push_back(
          {launched.kernel, launched.grid.x * launched.grid.y * launched.grid.z,
           launched.block.x * launched.block.y * launched.block.z, launched.shared_bytes});
    }
  });
}

CountedBackend::~CountedBackend() { emulation::ObserveLaunches({}); }

std::vector<CountedOperation> CountedBackend::Take() {
  next_ = {};
  return std::exchange(operations_, {});
}

void CountedBackend::Needs(std::string detail, double memory_bytes, double passing_bytes,
                           double flops, double host_bytes) {
  next_ = {.name = std::move(detail),
           .in_pass = in_pass_,
           .bytes = memory_bytes + passing_bytes,
           .memory_bytes = memory_bytes,
           .flops = flops,
           .host_bytes = host_bytes,
           .copies = 0,
           .launches = {}};
}

void CountedBackend::Around(const char* operation, const std::function<void()>& call) {
  next_.in_pass = in_pass_;
  call();
  next_.name = operation + next_.name;
  operations_.push_back(std::exchange(next_, {}));
}

void CountedBackend::RunPass(const PassInputs& inputs, const PassResults& results,
                             RecordedPasses* recorded, const std::function<void()>& operations) {
  in_pass_ = true;
  next_ = {};
  ForwardingBackend::RunPass(inputs, results, recorded, [&] {
    // What the backend itself sent before the first operation: the inputs.
    next_.name = "inputs of the pass";
    next_.in_pass = true;
    operations_.push_back(std::exchange(next_, {}));
    operations();
  });
  in_pass_ = false;
}

void CountedBackend::Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) {
  const auto rows = static_cast<double>(ids.size());
  Needs("", rows * RowBytesOf(table), BytesOf(out, std::ssize(ids)));
  ForwardingBackend::Embed(table, ids, out);
}

void CountedBackend::RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
                             Operand& out) {
  Needs("", BytesOf(x, 1), BytesOf(x, rows.count) + BytesOf(out, rows.count));  // a row: the weight
  ForwardingBackend::RmsNorm(x, weight, eps, rows, out);
}

void CountedBackend::MatMul(const Operand& x, const Weight& weight, const Vector* bias,
                            int32_t rows, Tensor& out) {
  Needs(ShapeOf(weight), BytesOf(weight) + BytesOf(out, bias == nullptr ? 0 : 1),
        BytesOf(x, rows) + BytesOf(out, rows), FlopsOf(weight, rows));
  ForwardingBackend::MatMul(x, weight, bias, rows, out);
}

void CountedBackend::MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) {
  Needs(ShapeOf(weight), BytesOf(weight), BytesOf(x, rows.count) + 2 * BytesOf(sum, rows.count),
        FlopsOf(weight, rows.count));
  ForwardingBackend::MatMulAdd(x, weight, rows, sum);
}

void CountedBackend::NormRopeStoreKv(Tensor& qkv, const AttentionShape& shape,
                                     const RopeTable& rope, const Vector* q_norm,
                                     const Vector* k_norm, float eps, const PassPlan& plan,
                                     KvStore& store) {
  // q and k come and go, v comes, k and v are stored.
  const double values = shape.qkv_cols() + shape.q_cols() + shape.kv_cols();
  const double stored = 2.0 * shape.kv_cols() *
                        static_cast<double>(BytesOf(static_cast<CudaKvStore&>(store).encoding));
  Needs("", plan.rows() * stored, plan.rows() * values * kFloatBytes);
  ForwardingBackend::NormRopeStoreKv(qkv, shape, rope, q_norm, k_norm, eps, plan, store);
}

void CountedBackend::Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                            const KvStore& store, Operand& out) {
  double rows = 0, seen = 0, keys = 0;
  std::set<std::pair<int32_t, int32_t>> spans;
  for (const AttentionRun& run : plan.runs) {
    rows += run.rows;
    for (int32_t i = 0; i < run.rows; ++i) seen += run.first_position + i + 1;
    for (int32_t s = run.first_span; s < run.first_span + run.span_count; ++s) {
      const KvSpan span = plan.spans[static_cast<size_t>(s)];
      if (spans.insert({span.first_row, span.count}).second) keys += span.count;
    }
  }
  const auto stored = static_cast<double>(BytesOf(static_cast<const CudaKvStore&>(store).encoding));
  Needs("", keys * 2 * shape.kv_cols() * stored,
        rows * shape.q_cols() * kFloatBytes + BytesOf(out, static_cast<int64_t>(rows)),
        4.0 * shape.q_cols() * seen);
  ForwardingBackend::Attend(qkv, shape, plan, store, out);
}

void CountedBackend::GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) {
  Needs("", 0, BytesOf(gate_up, rows) + BytesOf(out, rows));
  ForwardingBackend::GatedSilu(gate_up, rows, out);
}

void CountedBackend::SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) {
  Needs("", 0, 2 * BytesOf(out, std::ssize(rows)));
  ForwardingBackend::SelectRows(x, rows, out);
}

void CountedBackend::FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                               Tensor& out) {
  Needs("", BytesOf(x, 1), BytesOf(x, rows) + BytesOf(out, rows));
  ForwardingBackend::FinalNorm(x, weight, eps, rows, out);
}

void CountedBackend::LabelLogits(const Tensor& x, const Table& head,
                                 std::span<const int32_t> row_of, std::span<const TokenId> ids,
                                 std::span<float> out) {
  // What pads the pass reads nothing.
  const auto labels = static_cast<double>(std::ssize(ids) - std::ranges::count(ids, kNoToken));
  Needs("", labels * RowBytesOf(head), BytesOf(x, 1), labels * RowBytesOf(head));
  ForwardingBackend::LabelLogits(x, head, row_of, ids, out);
}

void CountedBackend::Upload(std::span<const float> values, int32_t rows, Tensor& out) {
  Needs("", 0, 0, 0, BytesOf(out, rows));
  ForwardingBackend::Upload(values, rows, out);
}

void CountedBackend::Download(const Tensor& x, int32_t rows, std::span<float> out) {
  Needs("", 0, 0, 0, BytesOf(x, rows));
  ForwardingBackend::Download(x, rows, out);
}

}  // namespace sysone
