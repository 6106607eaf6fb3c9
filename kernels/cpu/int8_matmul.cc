// Matrix products in int8: quantises weights and packs them into panels at load, and splits a
// product among threads by output columns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/cpu/kernel_tables.h"
#include "kernels/cpu/matmul_engine.h"
#include "kernels/int8.h"

namespace sysone {
namespace {

struct Int8Weight : CpuWeight {
  int64_t panels = 0;
  int64_t padded_in_cols = 0;
  Buffer buffer;
  Buffer scales;  // float [panels][groups][scale | middle][panel_cols]
};

class Int8MatMul : public MatMulEngine {
 public:
  Int8MatMul(int64_t targets, ThreadPool& pool) : kernels_(GetInt8Kernels(targets)), pool_(pool) {
    for (int t = 0; t < pool.threads(); ++t) {
      sums_.emplace_back(kProductScratch * sizeof(float));
    }
  }

  std::string Describe() const override { return "own matrix products, activations int16"; }
  Encoding operand_encoding() const override { return Encoding::kInt16; }

  std::unique_ptr<Weight> Load(int64_t out_cols, int64_t in_cols,
                               const RowReader& reader) override {
    const int64_t width = kernels_.panel_cols;
    auto weight = std::make_unique<Int8Weight>();
    weight->out_cols = out_cols;
    weight->in_cols = in_cols;
    weight->padded_in_cols = RoundUp(in_cols, kInt8Depth);
    weight->panels = DivideUp(out_cols, width);
    const int64_t panel_bytes = width * weight->padded_in_cols;
    weight->buffer = Buffer(static_cast<size_t>(weight->panels * panel_bytes));
    const int64_t groups = DivideUp(in_cols, kInt8Group);
    weight->scales =
        Buffer(static_cast<size_t>(2 * weight->panels * groups * width) * sizeof(float));
    pool_.ParallelFor(weight->panels, [&](int64_t panel, int) {
      const int64_t first = panel * width, count = std::min(width, out_cols - first);
      std::vector<float> rows(static_cast<size_t>(count * in_cols));
      std::vector<int8_t> quantised(static_cast<size_t>(width * in_cols));
      reader(first, count, rows.data());
      float* const scales = weight->scales.As<float>() + 2 * panel * groups * width;
      for (int64_t c = 0; c < count; ++c) {
        for (int64_t k = 0; k < in_cols; k += kInt8Group) {
          const Int8Scale scale =
              QuantiseGroup(rows.data() + c * in_cols + k, std::min(kInt8Group, in_cols - k),
                            quantised.data() + c * in_cols + k);
          float* const at = scales + 2 * k / kInt8Group * width + c;
          at[0] = scale.scale;
          at[width] = scale.middle;
        }
      }
      kernels_.pack(quantised.data(), in_cols, weight->padded_in_cols,
                    weight->buffer.As<int8_t>() + panel * panel_bytes);
    });
    return weight;
  }

  void Multiply(const MatMulCall& call) override {
    if (call.rows == 0) return;
    const auto& weight = static_cast<const Int8Weight&>(*call.weight);
    // Four pieces a thread even out threads that the machine slows down.
    const int64_t pieces = std::min<int64_t>(4 * pool_.threads(), weight.panels);
    pool_.ParallelFor(pieces, [&](int64_t item, int thread) {
      Int8Product product;
      product.a = call.x->i16.Row(0);
      product.steps = call.x->steps.Row(0);
      product.group_sums = call.x->group_sums.Row(0);
      product.rows = call.rows;
      product.k = weight.padded_in_cols;
      product.panels = weight.buffer.As<int8_t>();
      product.first_panel = weight.panels * item / pieces;
      product.end_panel = weight.panels * (item + 1) / pieces;
      product.cols = weight.out_cols;
      product.scales = weight.scales.As<float>();
      product.bias = call.bias;
      product.out = call.out;
      product.out_stride = call.out_stride;
      product.add = call.add;
      product.sums = sums_[static_cast<size_t>(thread)].As<float>();
      kernels_.multiply(product);
    });
  }

 private:
  const Int8Kernels& kernels_;
  ThreadPool& pool_;
  std::vector<Buffer> sums_;  // one a thread
};

}  // namespace

std::unique_ptr<MatMulEngine> MakeInt8MatMul(int64_t targets, ThreadPool& pool) {
  return std::make_unique<Int8MatMul>(targets, pool);
}

}  // namespace sysone
