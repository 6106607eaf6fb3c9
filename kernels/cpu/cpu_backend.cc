// Splits every operation among the threads of a pool and calls the kernels of the chosen
// instruction set.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/log.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu_limits.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_tables.h"
#include "kernels/cpu/matmul_engine.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/int8.h"

namespace sysone {
namespace {

// Floats touched below which another thread costs more than it saves (a hand-over takes about as
// long as 4 Ki of them).
constexpr int64_t kPieceFloats = 4096;
// Rows of the head that one piece of SummarizeHead reads: they stay in the cache while all rows of
// x look at them.
constexpr int64_t kHeadPiece = 128;

Rows<float>& Out(Tensor& tensor) { return static_cast<CpuTensor&>(tensor).values; }

void CheckRow(int64_t row, int64_t rows) {
  SYSONE_CHECK(row >= 0 && row < rows, "row %lld of %lld", static_cast<long long>(row),
               static_cast<long long>(rows));
}

void CheckProduct(const CpuOperand& x, const Weight& weight, RowRange rows,
                  const Rows<float>& out) {
  const auto& w = static_cast<const CpuWeight&>(weight);
  SYSONE_CHECK(x.cols == w.in_cols && out.cols == w.out_cols && rows.count <= x.rows &&
                   rows.first + rows.count <= out.rows,
               "product shapes do not fit");
}

class CpuBackend : public Backend {
 public:
  CpuBackend(Dtype dtype, int threads, int64_t targets)
      : dtype_(dtype),
        isa_(IsaName(targets)),
        rows_(GetRowKernels(targets)),
        int8_(GetInt8Kernels(targets)),
        pool_(threads),
        attention_(targets, pool_) {}

  ThreadPool& pool() { return pool_; }
  // A given grain is kept whatever SetWeightGrain says.
  void set_engine(std::unique_ptr<MatMulEngine> engine, std::optional<WeightGrain> grain) {
    engine_ = std::move(engine);
    fixed_grain_ = grain.has_value();
    if (grain) engine_->set_weight_grain(*grain);
  }

  std::string Describe() const override {
    return Format("cpu: %s, weights %s, %s, %d threads", isa_.c_str(), DtypeName(dtype_),
                  engine_->Describe().c_str(), pool_.threads());
  }

  void SetWeightGrain(WeightGrain grain) override {
    if (!fixed_grain_) engine_->set_weight_grain(grain);
  }
  std::unique_ptr<Weight> LoadWeight(int64_t out_cols, int64_t in_cols,
                                     const RowReader& reader) override {
    return engine_->Load(out_cols, in_cols, reader);
  }
  std::unique_ptr<Vector> LoadVector(std::span<const float> values) override {
    auto vector = std::make_unique<CpuVector>(std::ssize(values));
    std::ranges::copy(values, vector->values.Row(0));
    return vector;
  }
  std::unique_ptr<Table> LoadTable(int64_t rows, int64_t cols, const RowReader& reader) override;
  std::unique_ptr<RopeTable> LoadRope(int32_t head_dim, std::span<const float> cos,
                                      std::span<const float> sin) override;

  std::unique_ptr<Tensor> NewTensor(int64_t max_rows, int64_t cols) override {
    return std::make_unique<CpuTensor>(max_rows, cols);
  }
  std::unique_ptr<Operand> NewOperand(int64_t max_rows, int64_t cols) override;
  int64_t KvRowBytes(const AttentionShape& shape) const override {
    return CpuKvStore::RowBytes(shape);
  }
  std::unique_ptr<KvStore> NewKvStore(int64_t rows, const AttentionShape& shape) override {
    return std::make_unique<CpuKvStore>(rows, shape);
  }

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
  void Clear(Tensor& x, RowRange rows) override { std::ranges::fill(Memory(x, rows), 0.f); }
  std::span<float> Memory(Tensor& x, RowRange rows) override;
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override;
  void Download(const Tensor& x, int32_t rows, std::span<float> out) override;

 private:
  // Calls work(row, thread) for every row; a row touches about row_floats floats. Rows that start at
  // a multiple of `together` are left to one thread.
  template <class Work>
  void ForRows(int64_t rows, int64_t row_floats, const Work& work, int64_t together = 1) {
    const int64_t few = kPieceFloats / std::max<int64_t>(1, row_floats * together);
    const int64_t piece = std::max<int64_t>(1, few) * together;
    pool_.ParallelFor((rows + piece - 1) / piece, [&](int64_t item, int thread) {
      const int64_t end = std::min(rows, (item + 1) * piece);
      for (int64_t r = item * piece; r < end; ++r) work(r, thread);
    });
  }

  // Where a producer writes the floats of an operand's row, before EncodeRow.
  float* Target(CpuOperand& operand, int64_t row, int thread) const {
    return operand.encoding == Encoding::kFloat32 ? operand.f32.Row(row) : staging_.Row(thread);
  }
  void EncodeRow(CpuOperand& operand, int64_t row, const float* from) const {
    switch (operand.encoding) {
      case Encoding::kFloat32:
        break;
      case Encoding::kBfloat16:
        rows_.narrow(from, operand.cols, operand.bf16.Row(row));
        break;
      case Encoding::kInt8:
        operand.peak_counts.Row(0)[row] = int8_.encode_bytes(
            from, operand.cols, operand.codes.Row(row), operand.Steps(row), operand.peaks.Row(row));
        break;
      case Encoding::kInt16:
        int8_.encode_words(from, operand.cols, operand.codes.Row(row), operand.Steps(row));
        break;
    }
  }

  float HeadLogit(const float* x, const CpuTable& head, int64_t id) const {
    return head.dtype == Dtype::kFloat32 ? rows_.dot_f32(x, head.f32.Row(id), head.cols)
                                         : rows_.dot_bf16(x, head.bf16.Row(id), head.cols);
  }

  struct HeadPiece {
    float largest;
    TokenId argmax;
    float sum_exp;  // of logits minus largest
  };

  const Dtype dtype_;
  const std::string isa_;
  const RowKernels& rows_;
  const Int8Kernels& int8_;
  ThreadPool pool_;
  CpuAttention attention_;
  std::unique_ptr<MatMulEngine> engine_;
  bool fixed_grain_ = false;
  Rows<float> staging_;            // [threads, widest operand], if operands are not float32
  std::vector<HeadPiece> pieces_;  // of the current SummarizeHead call; kept for its memory
};

std::unique_ptr<Table> CpuBackend::LoadTable(int64_t rows, int64_t cols, const RowReader& reader) {
  auto table = std::make_unique<CpuTable>();
  table->rows = rows;
  table->cols = cols;
  table->dtype = dtype_ == Dtype::kFloat32 ? Dtype::kFloat32 : Dtype::kBfloat16;
  if (table->dtype == Dtype::kFloat32)
    table->f32 = Rows<float>(rows, cols);
  else
    table->bf16 = Rows<uint16_t>(rows, cols);
  const int64_t piece = std::max<int64_t>(1, 65536 / cols);
  pool_.ParallelFor((rows + piece - 1) / piece, [&](int64_t item, int) {
    const int64_t first = item * piece, count = std::min(piece, rows - first);
    std::vector<float> values(static_cast<size_t>(count * cols));
    reader(first, count, values.data());
    for (int64_t r = 0; r < count; ++r) {
      const float* from = values.data() + r * cols;
      if (table->dtype == Dtype::kFloat32)
        std::copy_n(from, cols, table->f32.Row(first + r));
      else
        rows_.narrow(from, cols, table->bf16.Row(first + r));
    }
  });
  return table;
}

std::unique_ptr<RopeTable> CpuBackend::LoadRope(int32_t head_dim, std::span<const float> cos,
                                                std::span<const float> sin) {
  SYSONE_CHECK(head_dim % 2 == 0 && cos.size() == sin.size(), "rope tables do not fit");
  const int64_t half = head_dim / 2, positions = std::ssize(cos) / half;
  auto rope = std::make_unique<CpuRope>(positions, half);
  for (int64_t p = 0; p < positions; ++p) {
    std::copy_n(cos.data() + p * half, half, rope->cos.Row(p));
    std::copy_n(sin.data() + p * half, half, rope->sin.Row(p));
  }
  return rope;
}

std::unique_ptr<Operand> CpuBackend::NewOperand(int64_t max_rows, int64_t cols) {
  auto operand = std::make_unique<CpuOperand>();
  operand->rows = max_rows;
  operand->cols = cols;
  operand->encoding = engine_->operand_encoding();
  switch (operand->encoding) {
    case Encoding::kFloat32:
      operand->f32 = Rows<float>(max_rows, cols);
      return operand;
    case Encoding::kBfloat16:
      operand->bf16 = Rows<uint16_t>(max_rows, cols);
      break;
    case Encoding::kInt8:
      operand->peaks = Rows<Peak>(max_rows, DivideUp(cols, kInt8Group) * kPeaks);
      operand->peak_counts = Rows<int32_t>(1, max_rows);
      [[fallthrough]];
    case Encoding::kInt16:
      operand->groups = DivideUp(cols, kInt8Group);
      operand->codes =
          TiledRows(max_rows, operand->groups * LanesOfGroup(operand->encoding == Encoding::kInt16),
                    int8_.tile_rows);
      operand->steps = Rows<float>(1, RoundUp(max_rows, int8_.tile_rows) * 2 * operand->groups);
      break;
  }
  if (staging_.cols < cols) staging_ = Rows<float>(pool_.threads(), cols);
  return operand;
}

void CpuBackend::Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) {
  const auto& from = static_cast<const CpuTable&>(table);
  SYSONE_CHECK(Out(out).cols == from.cols && std::ssize(ids) <= Out(out).rows, "shapes do not fit");
  ForRows(std::ssize(ids), from.cols, [&](int64_t r, int) {
    const int64_t id = ids[static_cast<size_t>(r)];
    if (id == kNoToken) {
      std::fill_n(Out(out).Row(r), from.cols, 0.f);
      return;
    }
    CheckRow(id, from.rows);
    if (from.dtype == Dtype::kFloat32)
      std::copy_n(from.f32.Row(id), from.cols, Out(out).Row(r));
    else
      rows_.widen(from.bf16.Row(id), from.cols, Out(out).Row(r));
  });
}

void CpuBackend::RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
                         Operand& out) {
  auto& operand = static_cast<CpuOperand&>(out);
  const int64_t cols = In(x).cols;
  SYSONE_CHECK(
      operand.cols == cols && rows.count <= operand.rows && rows.first + rows.count <= In(x).rows,
      "norm shapes do not fit");
  ForRows(
      rows.count, 2 * cols,
      [&](int64_t i, int thread) {
        float* const to = Target(operand, i, thread);
        rows_.rms_norm(In(x).Row(rows.first + i), In(weight), cols, eps, to);
        EncodeRow(operand, i, to);
      },
      operand.codes.tile_rows);
}

void CpuBackend::MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
                        Tensor& out) {
  const auto& operand = static_cast<const CpuOperand&>(x);
  CheckProduct(operand, weight, {0, rows}, Out(out));
  engine_->Multiply({&operand, &weight, bias ? In(*bias) : nullptr, rows, Out(out).Row(0),
                     Out(out).stride, false});
}

void CpuBackend::MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) {
  const auto& operand = static_cast<const CpuOperand&>(x);
  CheckProduct(operand, weight, rows, Out(sum));
  engine_->Multiply(
      {&operand, &weight, nullptr, rows.count, Out(sum).Row(rows.first), Out(sum).stride, true});
}

void CpuBackend::NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                          const Vector* q_norm, const Vector* k_norm, float eps,
                          const PassPlan& plan) {
  const auto& table = static_cast<const CpuRope&>(rope);
  const int32_t dim = shape.head_dim;
  SYSONE_CHECK(Out(qkv).cols == shape.qkv_cols() && table.cos.cols * 2 == dim &&
                   plan.rows() <= Out(qkv).rows,
               "rope shapes do not fit");
  ForRows(plan.rows(), 2 * shape.qkv_cols(), [&](int64_t r, int) {
    const int64_t position = plan.positions[static_cast<size_t>(r)];
    CheckRow(position, table.cos.rows);
    const float* const cos = table.cos.Row(position);
    const float* const sin = table.sin.Row(position);
    float* const q = Out(qkv).Row(r);
    rows_.norm_rotate(q, shape.heads, q_norm ? In(*q_norm) : nullptr, eps, cos, sin, dim / 2);
    rows_.norm_rotate(q + shape.q_cols(), shape.kv_heads, k_norm ? In(*k_norm) : nullptr, eps, cos,
                      sin, dim / 2);
  });
}

void CpuBackend::StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                         KvStore& store) {
  attention_.StoreKv(In(qkv), shape, plan, static_cast<CpuKvStore&>(store));
}

void CpuBackend::Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                        const KvStore& store, Operand& out) {
  auto& operand = static_cast<CpuOperand&>(out);
  SYSONE_CHECK(operand.cols == shape.q_cols() && plan.rows() <= operand.rows,
               "attention shapes do not fit");
  // Several threads have a part of a row, so it is encoded when all of it is there.
  if (operand.f32.rows == 0) operand.f32 = Rows<float>(operand.rows, operand.cols);
  attention_.Attend(In(qkv), shape, plan, static_cast<const CpuKvStore&>(store), operand.f32);
  if (operand.encoding != Encoding::kFloat32)
    ForRows(
        plan.rows(), operand.cols,
        [&](int64_t r, int) { EncodeRow(operand, r, operand.f32.Row(r)); },
        operand.codes.tile_rows);
}

void CpuBackend::GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) {
  auto& operand = static_cast<CpuOperand&>(out);
  const int64_t cols = operand.cols;
  SYSONE_CHECK(In(gate_up).cols == 2 * cols && rows <= operand.rows && rows <= In(gate_up).rows,
               "gate shapes do not fit");
  ForRows(
      rows, 8 * cols,
      [&](int64_t r, int thread) {
        float* const to = Target(operand, r, thread);
        rows_.gated_silu(In(gate_up).Row(r), In(gate_up).Row(r) + cols, cols, to);
        EncodeRow(operand, r, to);
      },
      operand.codes.tile_rows);
}

void CpuBackend::SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) {
  SYSONE_CHECK(In(x).cols == Out(out).cols && std::ssize(rows) <= Out(out).rows,
               "shapes do not fit");
  for (size_t i = 0; i < rows.size(); ++i) {
    CheckRow(rows[i], In(x).rows);
    std::copy_n(In(x).Row(rows[i]), In(x).cols, Out(out).Row(static_cast<int64_t>(i)));
  }
}

void CpuBackend::FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                           Tensor& out) {
  SYSONE_CHECK(In(x).cols == Out(out).cols && rows <= Out(out).rows && rows <= In(x).rows,
               "norm shapes do not fit");
  ForRows(rows, 2 * In(x).cols, [&](int64_t r, int) {
    rows_.rms_norm(In(x).Row(r), In(weight), In(x).cols, eps, Out(out).Row(r));
  });
}

void CpuBackend::LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                             std::span<const TokenId> ids, std::span<float> out) {
  const auto& table = static_cast<const CpuTable&>(head);
  SYSONE_CHECK(table.cols == In(x).cols && row_of.size() == ids.size() && out.size() >= ids.size(),
               "label shapes do not fit");
  ForRows(std::ssize(ids), table.cols, [&](int64_t item, int) {
    const auto i = static_cast<size_t>(item);
    CheckRow(row_of[i], In(x).rows);
    if (ids[i] == kNoToken) {
      out[i] = 0;
      return;
    }
    CheckRow(ids[i], table.rows);
    out[i] = HeadLogit(In(x).Row(row_of[i]), table, ids[i]);
  });
}

void CpuBackend::SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                               std::span<HeadSummary> out) {
  const auto& table = static_cast<const CpuTable&>(head);
  SYSONE_CHECK(
      table.cols == In(x).cols && rows <= In(x).rows && rows <= std::ssize(out) && table.rows > 0,
      "head shapes do not fit");
  const int64_t piece_count = (table.rows + kHeadPiece - 1) / kHeadPiece;
  pieces_.resize(static_cast<size_t>(piece_count * rows));
  pool_.ParallelFor(piece_count, [&](int64_t piece, int) {
    const int64_t first = piece * kHeadPiece, count = std::min(kHeadPiece, table.rows - first);
    float logits[kHeadPiece];
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < count; ++v) logits[v] = HeadLogit(In(x).Row(r), table, first + v);
      const float* const largest = std::max_element(logits, logits + count);
      pieces_[static_cast<size_t>(piece * rows + r)] = {
          *largest, static_cast<TokenId>(first + (largest - logits)),
          rows_.sum_exp(logits, count, *largest)};
    }
  });
  for (int64_t r = 0; r < rows; ++r) {
    HeadPiece best = pieces_[static_cast<size_t>(r)];
    for (int64_t p = 1; p < piece_count; ++p) {
      const HeadPiece& piece = pieces_[static_cast<size_t>(p * rows + r)];
      if (piece.largest > best.largest) best = piece;
    }
    double total = 0;
    for (int64_t p = 0; p < piece_count; ++p) {
      const HeadPiece& piece = pieces_[static_cast<size_t>(p * rows + r)];
      total += std::exp(static_cast<double>(piece.largest) - best.largest) * piece.sum_exp;
    }
    out[static_cast<size_t>(r)] = {static_cast<float>(best.largest + std::log(total)), best.argmax};
  }
}

std::span<float> CpuBackend::Memory(Tensor& x, RowRange rows) {
  const Rows<float>& values = Out(x);
  SYSONE_CHECK(rows.first >= 0 && rows.first + rows.count <= values.rows, "rows do not fit");
  if (rows.count == 0) return {};
  return {values.Row(rows.first),
          static_cast<size_t>((rows.count - 1) * values.stride + values.cols)};
}

void CpuBackend::Upload(std::span<const float> values, int32_t rows, Tensor& out) {
  const int64_t cols = Out(out).cols;
  SYSONE_CHECK(rows <= Out(out).rows && rows * cols <= std::ssize(values), "shapes do not fit");
  for (int64_t r = 0; r < rows; ++r) std::copy_n(values.data() + r * cols, cols, Out(out).Row(r));
}

void CpuBackend::Download(const Tensor& x, int32_t rows, std::span<float> out) {
  SYSONE_CHECK(rows <= In(x).rows && rows * In(x).cols <= std::ssize(out), "shapes do not fit");
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(In(x).Row(r), In(x).cols, out.data() + r * In(x).cols);
}

}  // namespace

Result<std::unique_ptr<Backend>> MakeCpuBackend(std::optional<Dtype> wanted, int threads,
                                                const std::string& isa, MatMulChoice matmul,
                                                std::optional<WeightGrain> grain) {
  SYSONE_ASSIGN_OR_RETURN(const int64_t targets, IsaTargets(isa));
  const Dtype dtype =
      wanted.value_or(MultipliesIntegersFast(targets) ? Dtype::kInt8 : Dtype::kFloat32);
  if (threads < 0) return Error(Code::kInvalidArgument, "threads is %d; give 0 or more", threads);
  auto backend =
      std::make_unique<CpuBackend>(dtype, threads > 0 ? threads : AllowedThreads(), targets);
  // A chosen instruction set means our own kernels of that set.
  const bool onednn =
      matmul == MatMulChoice::kOnednn ||
      (dtype == Dtype::kBfloat16 && isa == "auto" && OnednnHasBfloat16Instructions());
  auto engine = onednn ? MakeOnednnMatMul(dtype, backend->pool()) : nullptr;
  if (!engine && matmul == MatMulChoice::kOnednn)
    return Error(Code::kUnsupported, "oneDNN has no %s matrix product for this CPU",
                 DtypeName(dtype));
  if (!engine)
    engine = dtype == Dtype::kInt8 ? MakeInt8MatMul(targets, backend->pool())
                                   : MakePanelMatMul(dtype, targets, backend->pool());
  backend->set_engine(std::move(engine), grain);
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace sysone
