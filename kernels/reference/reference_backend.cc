// Scalar loops, one matrix type for everything, sums in double.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "kernels/bfloat16.h"
#include "kernels/int8.h"

namespace sysone {
namespace {

// One row-major matrix stands for every kind of object.
struct Matrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> data;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), data(static_cast<size_t>(r * c)) {}
  float* Row(int64_t r) { return At(data.data(), r); }
  const float* Row(int64_t r) const { return At(data.data(), r); }

 private:
  template <class T>
  T* At(T* base, int64_t r) const {
    SYSONE_CHECK(r >= 0 && r < rows, "row %lld of %lld", static_cast<long long>(r),
                 static_cast<long long>(rows));
    return base + r * cols;
  }
};

template <class Base>
struct Ref : Base, Matrix {
  using Matrix::Matrix;
};
struct RefRope : RopeTable {
  RefRope(int64_t positions, int64_t half) : cos(positions, half), sin(positions, half) {}
  Matrix cos, sin;
};
struct RefKv : KvStore {
  RefKv(int64_t rows, int64_t cols) : keys(rows, cols), values(rows, cols) {}
  Matrix keys, values;
};

// The matrix inside an interface object that this backend made.
template <class Base>
Matrix& In(Base& object) {
  return static_cast<Ref<Base>&>(object);
}
template <class Base>
const Matrix& In(const Base& object) {
  return static_cast<const Ref<Base>&>(object);
}

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void Normalize(const float* x, const float* weight, int64_t n, double eps, float* out) {
  const double scale = 1.0 / std::sqrt(Dot(x, x, n) / static_cast<double>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

void Rotate(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const double a = x[i], b = x[i + half];
    x[i] = static_cast<float>(a * cos[i] - b * sin[i]);
    x[i + half] = static_cast<float>(a * sin[i] + b * cos[i]);
  }
}

// Store rows of the first `count` positions of a run.
std::vector<int64_t> VisibleRows(const PassPlan& plan, const AttentionRun& run, int64_t count) {
  std::vector<int64_t> rows;
  for (int32_t s = 0; s < run.span_count; ++s) {
    const KvSpan& span = plan.spans[static_cast<size_t>(run.first_span + s)];
    for (int32_t i = 0; i < span.count && std::ssize(rows) < count; ++i)
      rows.push_back(span.first_row + i);
  }
  SYSONE_CHECK(std::ssize(rows) == count, "the spans of a run are shorter than its positions");
  return rows;
}

void AttendHead(const float* q, int64_t kv_offset, const AttentionShape& shape, const RefKv& store,
                const std::vector<int64_t>& visible, float* out) {
  std::vector<double> weights;
  double largest = -std::numeric_limits<double>::infinity();
  for (const int64_t row : visible) {
    weights.push_back(shape.scale * Dot(q, store.keys.Row(row) + kv_offset, shape.head_dim));
    largest = std::max(largest, weights.back());
  }
  double total = 0;
  for (double& w : weights) total += w = std::exp(w - largest);
  for (int32_t d = 0; d < shape.head_dim; ++d) {
    double sum = 0;
    for (size_t j = 0; j < visible.size(); ++j)
      sum += weights[j] * store.values.Row(visible[j])[kv_offset + d];
    out[d] = static_cast<float>(sum / total);
  }
}

class ReferenceBackend : public Backend {
 public:
  ReferenceBackend(Dtype dtype, std::optional<WeightGrain> grain)
      : dtype_(dtype),
        fixed_grain_(grain.has_value()),
        grain_(grain.value_or(WeightGrain::kCoarse)) {}

  std::string Describe() const override {
    return std::string("reference: scalar, one thread, weights ") + DtypeName(dtype_);
  }

  void SetWeightGrain(WeightGrain grain) override {
    if (!fixed_grain_) grain_ = grain;
  }
  std::unique_ptr<Weight> LoadWeight(int64_t out_cols, int64_t in_cols,
                                     const RowReader& reader) override {
    auto weight = Load<Weight>(out_cols, in_cols, reader);
    if (dtype_ == Dtype::kInt8) RoundToInt8(In(*static_cast<Weight*>(weight.get())));
    return weight;
  }
  std::unique_ptr<Vector> LoadVector(std::span<const float> values) override {
    auto vector = std::make_unique<Ref<Vector>>(1, std::ssize(values));
    std::ranges::copy(values, vector->data.begin());
    return vector;
  }
  std::unique_ptr<Table> LoadTable(int64_t rows, int64_t cols, const RowReader& reader) override {
    return Load<Table>(rows, cols, reader);
  }
  std::unique_ptr<RopeTable> LoadRope(int32_t head_dim, std::span<const float> cos,
                                      std::span<const float> sin) override {
    SYSONE_CHECK(head_dim % 2 == 0 && cos.size() == sin.size(), "rope tables do not fit");
    const int64_t half = head_dim / 2;
    auto rope = std::make_unique<RefRope>(std::ssize(cos) / half, half);
    std::ranges::copy(cos, rope->cos.data.begin());
    std::ranges::copy(sin, rope->sin.data.begin());
    return rope;
  }

  std::unique_ptr<Tensor> NewTensor(int64_t max_rows, int64_t cols) override {
    return std::make_unique<Ref<Tensor>>(max_rows, cols);
  }
  std::unique_ptr<Operand> NewOperand(int64_t max_rows, int64_t cols) override {
    return std::make_unique<Ref<Operand>>(max_rows, cols);
  }
  int64_t KvRowBytes(const AttentionShape& shape) const override {
    return 2 * shape.kv_cols() * static_cast<int64_t>(sizeof(float));
  }
  std::unique_ptr<KvStore> NewKvStore(int64_t rows, const AttentionShape& shape) override {
    return std::make_unique<RefKv>(rows, shape.kv_cols());
  }

  void Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) override {
    const Matrix& from = In(table);
    for (size_t r = 0; r < ids.size(); ++r) {
      float* const to = In(out).Row(static_cast<int64_t>(r));
      if (ids[r] == kNoToken)
        std::fill_n(to, from.cols, 0.f);
      else
        std::copy_n(from.Row(ids[r]), from.cols, to);
    }
  }

  void RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
               Operand& out) override {
    for (int32_t i = 0; i < rows.count; ++i)
      Normalize(In(x).Row(rows.first + i), In(weight).Row(0), In(x).cols, eps, In(out).Row(i));
  }

  void MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
              Tensor& out) override {
    const Matrix& w = In(weight);
    CheckProduct(In(x), w, In(out));
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < w.rows; ++c) {
        const double sum = Dot(In(x).Row(r), w.Row(c), w.cols);
        In(out).Row(r)[c] = static_cast<float>(bias ? sum + In(*bias).Row(0)[c] : sum);
      }
    }
  }

  void MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) override {
    const Matrix& w = In(weight);
    CheckProduct(In(x), w, In(sum));
    for (int32_t i = 0; i < rows.count; ++i) {
      float* into = In(sum).Row(rows.first + i);
      for (int64_t c = 0; c < w.rows; ++c)
        into[c] = static_cast<float>(into[c] + Dot(In(x).Row(i), w.Row(c), w.cols));
    }
  }

  void NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                const Vector* q_norm, const Vector* k_norm, float eps,
                const PassPlan& plan) override {
    const auto& table = static_cast<const RefRope&>(rope);
    const int32_t half = shape.head_dim / 2;
    SYSONE_CHECK(table.cos.cols == half && In(qkv).cols == shape.qkv_cols(), "shapes do not fit");
    for (int32_t r = 0; r < plan.rows(); ++r) {
      const int64_t position = plan.positions[static_cast<size_t>(r)];
      for (int32_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
        float* head = In(qkv).Row(r) + h * shape.head_dim;
        const Vector* norm = h < shape.heads ? q_norm : k_norm;
        if (norm) Normalize(head, In(*norm).Row(0), shape.head_dim, eps, head);
        Rotate(head, table.cos.Row(position), table.sin.Row(position), half);
      }
    }
  }

  void StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
               KvStore& store) override {
    auto& kv = static_cast<RefKv&>(store);
    SYSONE_CHECK(In(qkv).cols == shape.qkv_cols() && kv.keys.cols == shape.kv_cols(),
                 "attention shapes do not fit");
    for (int32_t r = 0; r < plan.rows(); ++r) {
      const float* k = In(qkv).Row(r) + shape.q_cols();
      const int64_t to = plan.kv_rows[static_cast<size_t>(r)];
      if (to == kNoKvRow) continue;
      std::copy_n(k, shape.kv_cols(), kv.keys.Row(to));
      std::copy_n(k + shape.kv_cols(), shape.kv_cols(), kv.values.Row(to));
    }
  }

  void Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
              const KvStore& store, Operand& out) override {
    const auto& kv = static_cast<const RefKv&>(store);
    SYSONE_CHECK(In(qkv).cols == shape.qkv_cols() && kv.keys.cols == shape.kv_cols() &&
                     In(out).cols == shape.q_cols(),
                 "attention shapes do not fit");
    const int32_t group = shape.heads / shape.kv_heads;
    for (const AttentionRun& run : plan.runs) {
      for (int32_t i = 0; i < run.rows; ++i) {
        const auto visible = VisibleRows(plan, run, int64_t{run.first_position} + i + 1);
        const int32_t r = run.first_row + i;
        for (int32_t h = 0; h < shape.heads; ++h)
          AttendHead(In(qkv).Row(r) + h * shape.head_dim, h / group * shape.head_dim, shape, kv,
                     visible, In(out).Row(r) + h * shape.head_dim);
      }
    }
  }

  void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) override {
    const int64_t cols = In(out).cols;
    SYSONE_CHECK(In(gate_up).cols == 2 * cols, "gate_up is not twice as wide as its result");
    for (int32_t r = 0; r < rows; ++r) {
      const float* gate = In(gate_up).Row(r);
      for (int64_t c = 0; c < cols; ++c) {
        const double g = gate[c];
        In(out).Row(r)[c] = static_cast<float>(g / (1.0 + std::exp(-g)) * gate[cols + c]);
      }
    }
  }

  void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) override {
    for (size_t i = 0; i < rows.size(); ++i)
      std::copy_n(In(x).Row(rows[i]), In(x).cols, In(out).Row(static_cast<int64_t>(i)));
  }

  void FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                 Tensor& out) override {
    for (int32_t r = 0; r < rows; ++r)
      Normalize(In(x).Row(r), In(weight).Row(0), In(x).cols, eps, In(out).Row(r));
  }

  void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                   std::span<const TokenId> ids, std::span<float> out) override {
    for (size_t i = 0; i < ids.size(); ++i)
      out[i] =
          ids[i] == kNoToken
              ? 0
              : static_cast<float>(Dot(In(x).Row(row_of[i]), In(head).Row(ids[i]), In(x).cols));
  }

  void SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                     std::span<HeadSummary> out) override {
    const Matrix& table = In(head);
    std::vector<double> logits(static_cast<size_t>(table.rows));
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < table.rows; ++v)
        logits[static_cast<size_t>(v)] = Dot(In(x).Row(r), table.Row(v), table.cols);
      const auto largest = std::ranges::max_element(logits);
      double total = 0;
      for (const double logit : logits) total += std::exp(logit - *largest);
      out[static_cast<size_t>(r)] = {static_cast<float>(*largest + std::log(total)),
                                     static_cast<TokenId>(largest - logits.begin())};
    }
  }

  void Clear(Tensor& x, RowRange rows) override { std::ranges::fill(Memory(x, rows), 0.f); }
  std::span<float> Memory(Tensor& x, RowRange rows) override {
    if (rows.count == 0) return {};
    SYSONE_CHECK(rows.first + rows.count <= In(x).rows, "rows do not fit");
    return {In(x).Row(rows.first), static_cast<size_t>(rows.count * In(x).cols)};
  }
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override {
    const int64_t cols = In(out).cols;
    for (int32_t r = 0; r < rows; ++r) std::copy_n(values.data() + r * cols, cols, In(out).Row(r));
  }

  void Download(const Tensor& x, int32_t rows, std::span<float> out) override {
    for (int32_t r = 0; r < rows; ++r)
      std::copy_n(In(x).Row(r), In(x).cols, out.data() + r * In(x).cols);
  }

 private:
  template <class Base>
  std::unique_ptr<Base> Load(int64_t rows, int64_t cols, const RowReader& reader) {
    auto matrix = std::make_unique<Ref<Base>>(rows, cols);
    reader(0, rows, matrix->data.data());
    const bool to_bfloat16 =
        dtype_ == Dtype::kBfloat16 || (dtype_ == Dtype::kInt8 && std::is_same_v<Base, Table>);
    if (to_bfloat16)
      for (float& value : matrix->data) value = FromBfloat16(ToBfloat16(value));
    return matrix;
  }

  void RoundToInt8(Matrix& w) const {
    std::vector<uint8_t> codes(static_cast<size_t>(w.cols));
    std::vector<Int8Scale> groups(static_cast<size_t>((w.cols + kInt8Group - 1) / kInt8Group));
    for (int64_t c = 0; c < w.rows; ++c) {
      const std::span<float> column(w.Row(c), codes.size());
      const float unit =
          QuantiseColumn(column, LevelsOf(grain_).weight, codes.data(), groups.data());
      for (size_t k = 0; k < column.size(); ++k)
        column[k] = WeightOf(groups[k / kInt8Group], codes[k]) * unit;
    }
  }

  static void CheckProduct(const Matrix& x, const Matrix& w, const Matrix& out) {
    SYSONE_CHECK(x.cols == w.cols && out.cols == w.rows, "product shapes do not fit");
  }

  const Dtype dtype_;
  const bool fixed_grain_;
  WeightGrain grain_;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend(Dtype dtype, std::optional<WeightGrain> grain) {
  return std::make_unique<ReferenceBackend>(dtype, grain);
}

}  // namespace sysone
