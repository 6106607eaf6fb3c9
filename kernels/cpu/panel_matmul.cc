// Matrix products with our own kernels: packs weights into panels, and splits a product among
// threads by output columns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/cpu/kernel_tables.h"
#include "kernels/cpu/matmul_engine.h"

namespace sysone {
namespace {

struct PanelWeight : CpuWeight {
  int64_t panels = 0;
  Buffer buffer;
};

class PanelMatMul : public MatMulEngine {
 public:
  PanelMatMul(Dtype weights, int64_t targets, ThreadPool& pool)
      : dtype_(weights), kernels_(GetMatMulKernels(targets)), pool_(pool) {
    for (int t = 0; t < pool.threads(); ++t) scratch_.emplace_back(kProductScratch * sizeof(float));
  }

  std::string Describe() const override { return "own matrix products"; }
  Encoding operand_encoding() const override { return Encoding::kFloat32; }

  std::unique_ptr<Weight> Load(int64_t out_cols, int64_t in_cols,
                               const RowReader& reader) override {
    const int64_t width = kernels_.panel_cols;
    auto weight = std::make_unique<PanelWeight>();
    weight->out_cols = out_cols;
    weight->in_cols = in_cols;
    weight->panels = DivideUp(out_cols, width);
    const int64_t panel_bytes = width * in_cols * (dtype_ == Dtype::kBfloat16 ? 2 : 4);
    weight->buffer = Buffer(static_cast<size_t>(weight->panels * panel_bytes));
    const auto pack = dtype_ == Dtype::kBfloat16 ? kernels_.pack_bf16 : kernels_.pack_f32;
    pool_.ParallelFor(weight->panels, [&](int64_t panel, int) {
      std::vector<float> rows(static_cast<size_t>(width * in_cols));
      reader(panel * width, std::min(width, out_cols - panel * width), rows.data());
      pack(rows.data(), in_cols, weight->buffer.As<char>() + panel * panel_bytes);
    });
    return weight;
  }

  void Multiply(const MatMulCall& call) override {
    if (call.rows == 0) return;
    const auto& weight = static_cast<const PanelWeight&>(*call.weight);
    // Four pieces a thread even out threads that the machine slows down. Fewer columns than that:
    // split the rows, too.
    const int64_t pieces = 4 * pool_.threads();
    int64_t panels = DivideUp(weight.panels, pieces);
    if (panels > 4) panels = DivideUp(panels, 4) * 4;
    const int64_t col_parts = DivideUp(weight.panels, panels);
    const int64_t row_parts =
        std::clamp<int64_t>(pieces / (2 * col_parts), 1, DivideUp(call.rows, kRowUnit));
    const int64_t rows = DivideUp(DivideUp(call.rows, row_parts), kRowUnit) * kRowUnit;
    const auto multiply =
        dtype_ == Dtype::kBfloat16 ? kernels_.multiply_bf16 : kernels_.multiply_f32;
    pool_.ParallelFor(col_parts * row_parts, [&](int64_t item, int thread) {
      const int64_t first_row = item / col_parts * rows;
      const int64_t first_panel = item % col_parts * panels;
      PanelProduct product;
      product.a = call.x->f32.Row(first_row);
      product.a_stride = call.x->f32.stride;
      product.rows = std::min(rows, call.rows - first_row);
      if (product.rows <= 0) return;
      product.k = weight.in_cols;
      product.panels = weight.buffer.As<void>();
      product.first_panel = first_panel;
      product.end_panel = std::min(first_panel + panels, weight.panels);
      product.cols = weight.out_cols;
      product.bias = call.bias;
      product.out = call.out + first_row * call.out_stride;
      product.out_stride = call.out_stride;
      product.add = call.add;
      product.scratch = scratch_[static_cast<size_t>(thread)].As<float>();
      multiply(product);
    });
  }

 private:
  static constexpr int64_t kRowUnit = 12;  // whole register tiles on every target

  const Dtype dtype_;
  const MatMulKernels& kernels_;
  ThreadPool& pool_;
  std::vector<Buffer> scratch_;  // one a thread
};

}  // namespace

std::unique_ptr<MatMulEngine> MakePanelMatMul(Dtype weights, int64_t targets, ThreadPool& pool) {
  return std::make_unique<PanelMatMul>(weights, targets, pool);
}

}  // namespace sysone
