// Matrix products in int8: quantises weights and packs them into panels at load, and splits a
// product among threads by output columns.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <vector>

#include "kernels/cpu/kernel_tables.h"
#include "kernels/cpu/matmul_engine.h"
#include "kernels/int8.h"

namespace sysone {
namespace {

struct Int8Weight : CpuWeight {
  int64_t groups = 0;             // of in_cols
  std::vector<Int8Panel> panels;  // in `buffer`
  Buffer buffer;
  Buffer units;  // floats
};

// Panels that a thread takes at a time at least.
constexpr int64_t kLeastPiece = 2;

class Int8MatMul : public MatMulEngine {
 public:
  Int8MatMul(int64_t targets, ThreadPool& pool) : kernels_(GetInt8Kernels(targets)), pool_(pool) {
    for (int t = 0; t < pool.threads(); ++t) {
      sums_.emplace_back(kProductScratch * sizeof(float));
      unpacked_.emplace_back(
          static_cast<size_t>(kUnpackedGroups * kernels_.GroupBytes(Codes::kBytes)));
    }
  }

  std::string Describe() const override {
    return std::string("own matrix products, activations ") + (words() ? "int16" : "int8");
  }
  void set_weight_grain(WeightGrain grain) override { grain_ = grain; }
  Encoding operand_encoding() const override {
    return words() ? Encoding::kInt16 : Encoding::kInt8;
  }

  std::unique_ptr<Weight> Load(int64_t out_cols, int64_t in_cols,
                               const RowReader& reader) override {
    auto weight = std::make_unique<Int8Weight>();
    weight->out_cols = out_cols;
    weight->in_cols = in_cols;
    weight->groups = DivideUp(in_cols, kInt8Group);
    weight->panels.resize(static_cast<size_t>(DivideUp(out_cols, kernels_.panel_cols)));
    weight->units =
        Buffer(weight->panels.size() * static_cast<size_t>(kernels_.panel_cols) * sizeof(float));
    // How much memory the codes need is known when all are there.
    std::vector<Panel> quantised(weight->panels.size());
    const auto count = std::ssize(quantised);
    pool_.ParallelFor(count, [&](int64_t i, int) {
      quantised[static_cast<size_t>(i)] = Quantise(*weight, i * kernels_.panel_cols, reader);
    });
    std::vector<size_t> ends;
    for (const Panel& panel : quantised)
      ends.push_back((ends.empty() ? 0 : ends.back()) +
                     static_cast<size_t>(weight->groups * kernels_.GroupBytes(panel.kind)));
    weight->buffer = Buffer(ends.back());
    pool_.ParallelFor(count, [&](int64_t item, int) {
      const auto i = static_cast<size_t>(item);
      const Panel& panel = quantised[i];
      std::byte* const to = weight->buffer.As<std::byte>() + (i == 0 ? 0 : ends[i - 1]);
      weight->panels[i] = {to, panel.kind};
      std::ranges::copy(panel.units, weight->units.As<float>() + item * kernels_.panel_cols);
      const auto pack = PackerOf(panel.kind);
      for (int64_t g = 0; g < weight->groups; ++g)
        pack(panel.codes.data() + g * kInt8Group, weight->groups * kInt8Group,
             panel.scales.data() + g * kernels_.panel_cols,
             to + g * kernels_.GroupBytes(panel.kind));
    });
    return weight;
  }

  void Multiply(const MatMulCall& call) override {
    if (call.rows == 0) return;
    const auto& weight = static_cast<const Int8Weight&>(*call.weight);
    const std::vector<int64_t>& ends = PieceEnds(std::ssize(weight.panels));
    pool_.ParallelFor(std::ssize(ends), [&](int64_t item, int thread) {
      Int8Product product;
      product.words = words();
      product.a = call.x->codes.Row(0);
      product.steps = call.x->steps.Row(0);
      product.peaks = call.x->peaks.Row(0);
      product.peak_stride = call.x->peaks.stride;
      product.peak_counts = call.x->peak_counts.Row(0);
      product.rows = call.rows;
      product.groups = weight.groups;
      product.panels = weight.panels.data();
      product.units = weight.units.As<float>();
      product.first_panel = item == 0 ? 0 : ends[static_cast<size_t>(item) - 1];
      product.end_panel = ends[static_cast<size_t>(item)];
      product.cols = weight.out_cols;
      product.bias = call.bias;
      product.out = call.out;
      product.out_stride = call.out_stride;
      product.add = call.add;
      product.sums = sums_[static_cast<size_t>(thread)].As<float>();
      product.unpacked = unpacked_[static_cast<size_t>(thread)].As<std::byte>();
      kernels_.multiply(product);
    });
  }

 private:
  struct Panel {
    std::vector<uint8_t> codes;     // [panel_cols][groups * kInt8Group]
    std::vector<Int8Scale> scales;  // [groups][panel_cols], in units of their column
    std::vector<float> units;       // [panel_cols]
    Codes kind = Codes::kBytes;
  };

  bool words() const { return grain_ == WeightGrain::kFine; }
  Int8Kernels::Pack PackerOf(Codes kind) const {
    switch (kind) {
      case Codes::kHalfBytes:
        return kernels_.pack_half_bytes;
      case Codes::kBytes:
        return kernels_.pack_bytes;
      case Codes::kWords:
        return kernels_.pack_words;
    }
    return nullptr;
  }

  // Where the pieces of a product end that threads take one after the other. Each is a part of what is left: few pieces, which
  // read the rows seldom, and no thread waits long at the end for another one that the machine slows down.
  const std::vector<int64_t>& PieceEnds(int64_t panels) {
    std::vector<int64_t>& ends = piece_ends_[panels];
    for (int64_t end = ends.empty() ? 0 : panels; end < panels; ends.push_back(end))
      end += std::min(panels - end, std::max(kLeastPiece, (panels - end) / (2 * pool_.threads())));
    return ends;
  }

  // The panel that begins with column `first`; zeros for columns past the last one.
  Panel Quantise(const Int8Weight& weight, int64_t first, const RowReader& reader) const {
    const int64_t width = kernels_.panel_cols, depth = weight.groups * kInt8Group;
    const int64_t count = std::min(width, weight.out_cols - first);
    std::vector<float> rows(static_cast<size_t>(count * weight.in_cols));
    reader(first, count, rows.data());
    Panel panel;
    panel.codes.resize(static_cast<size_t>(width * depth));
    panel.scales.resize(static_cast<size_t>(width * weight.groups));
    panel.units.resize(static_cast<size_t>(width));
    std::vector<Int8Scale> scales(static_cast<size_t>(weight.groups));
    for (int64_t c = 0; c < count; ++c) {
      const std::span<const float> column(rows.data() + c * weight.in_cols,
                                          static_cast<size_t>(weight.in_cols));
      panel.units[static_cast<size_t>(c)] = QuantiseColumn(
          column, LevelsOf(grain_).weight, panel.codes.data() + c * depth, scales.data());
      for (int64_t g = 0; g < weight.groups; ++g)
        panel.scales[static_cast<size_t>(g * width + c)] = scales[static_cast<size_t>(g)];
    }
    if (words())
      panel.kind = Codes::kWords;
    else if (std::ranges::max(panel.codes) <= kHalfByteLevels)
      panel.kind = Codes::kHalfBytes;
    return panel;
  }

  const Int8Kernels& kernels_;
  ThreadPool& pool_;
  WeightGrain grain_ = WeightGrain::kCoarse;
  std::vector<Buffer> sums_, unpacked_;                 // one a thread
  std::map<int64_t, std::vector<int64_t>> piece_ends_;  // by the number of panels
};

}  // namespace

std::unique_ptr<MatMulEngine> MakeInt8MatMul(int64_t targets, ThreadPool& pool) {
  return std::make_unique<Int8MatMul>(targets, pool);
}

}  // namespace sysone
