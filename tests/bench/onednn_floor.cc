// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/onednn_floor.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/bfloat16.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace sysone {
namespace {

using dnnl::memory;
using Type = memory::data_type;

// Layers beyond this much weight would change nothing: it is many times any cache of a few cores. They are used in turn.
constexpr int64_t kColdBytes = int64_t{768} << 20;

struct Shape {
  int64_t in_cols, out_cols;
};

std::vector<Shape> Projections(const ModelConfig& config) {
  const int64_t hidden = config.hidden, wide = config.intermediate;
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  return {{hidden, q + 2 * kv}, {q, hidden}, {hidden, 2 * wide}, {wide, hidden}};
}

// Left side, right side and result of one kind of product, as plain values.
struct Float32 {
  using Left = float;
  using Right = float;
  using Out = float;
  static constexpr Type kLeft = Type::f32, kRight = Type::f32, kOut = Type::f32;
  static Left MakeLeft(int value) { return static_cast<float>(value) / 16; }
  static Right MakeRight(int value) { return static_cast<float>(value) / 16; }
  static double Value(float value) { return value; }
};
struct Bfloat16 {
  using Left = uint16_t;
  using Right = uint16_t;
  using Out = float;
  static constexpr Type kLeft = Type::bf16, kRight = Type::bf16, kOut = Type::f32;
  static Left MakeLeft(int value) { return ToBfloat16(static_cast<float>(value) / 16); }
  static Right MakeRight(int value) { return ToBfloat16(static_cast<float>(value) / 16); }
  static double Value(uint16_t value) { return FromBfloat16(value); }
};
struct Int8 {
  using Left = uint8_t;
  using Right = int8_t;
  using Out = int32_t;
  static constexpr Type kLeft = Type::u8, kRight = Type::s8, kOut = Type::s32;
  static Left MakeLeft(int value) { return static_cast<uint8_t>(value + 64); }
  static Right MakeRight(int value) { return static_cast<int8_t>(value); }
  static double Value(int value) { return value; }
};

template <class Kind>
class Floor : public OnednnFloor {
 public:
  Floor(const ModelConfig& config, int threads)
      : threads_(threads), shapes_(Projections(config)), layers_(std::ssize(config.layers)) {
    int64_t layer_bytes = 0;
    for (const Shape& shape : shapes_) {
      layer_bytes += shape.in_cols * shape.out_cols * int64_t{sizeof(Right)};
      widest_in_ = std::max(widest_in_, shape.in_cols);
      widest_out_ = std::max(widest_out_, shape.out_cols);
    }
    const int64_t distinct = std::clamp(kColdBytes / layer_bytes + 1, int64_t{1}, layers_);
    packed_.assign(static_cast<size_t>(distinct), std::vector<memory>(shapes_.size()));
    Describe(shapes_[0], 16);  // throws where there is nothing
  }

  void Prepare(int64_t rows) override {
    omp_set_num_threads(threads_);
    rows_ = rows;
    x_.resize(static_cast<size_t>(rows * widest_in_));
    for (auto& value : x_) value = Kind::MakeLeft(Draw());
    out_.resize(static_cast<size_t>(rows * widest_out_));
    first_out_.resize(static_cast<size_t>(rows * shapes_[0].out_cols));
    steps_.clear();
    for (size_t p = 0; p < shapes_.size(); ++p) {
      const auto description = Describe(shapes_[p], rows);
      implementation_ = description.impl_info_str();
      if (!packed_[0][p] || packed_[0][p].get_desc() != description.weights_desc())
        Pack(p, description.weights_desc());
      steps_.push_back({dnnl::matmul(description),
                        memory(description.src_desc(), engine_, x_.data()),
                        memory(description.dst_desc(), engine_, out_.data())});
    }
  }

  void Run() override {
    omp_set_num_threads(threads_);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      const auto& weights = packed_[static_cast<size_t>(layer % std::ssize(packed_))];
      for (size_t p = 0; p < steps_.size(); ++p)
        steps_[p].product.execute(stream_, {{DNNL_ARG_SRC, steps_[p].x},
                                            {DNNL_ARG_WEIGHTS, weights[p]},
                                            {DNNL_ARG_DST, steps_[p].out}});
    }
    stream_.wait();
  }

  // Multiplies the first projection alone: the runs write all products into one buffer.
  bool ProductIsRight() const override {
    const Shape shape = shapes_[0];
    dnnl::stream stream = stream_;
    memory out(steps_[0].out.get_desc(), engine_, const_cast<Out*>(first_out_.data()));
    steps_[0].product.execute(
        stream,
        {{DNNL_ARG_SRC, steps_[0].x}, {DNNL_ARG_WEIGHTS, packed_[0][0]}, {DNNL_ARG_DST, out}});
    stream.wait();
    memory plain({{shape.in_cols, shape.out_cols}, Kind::kRight, memory::format_tag::ab}, engine_);
    memory packed = packed_[0][0];
    dnnl::reorder(packed, plain).execute(stream, packed, plain);
    stream.wait();
    const auto* const w = static_cast<const Right*>(plain.get_data_handle());
    for (const auto& [row, col] :
         {std::pair<int64_t, int64_t>{0, 0}, {rows_ - 1, shape.out_cols - 1}}) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < shape.in_cols; ++k) {
        const double term = Kind::Value(x_[static_cast<size_t>(row * shape.in_cols + k)]) *
                            Kind::Value(w[k * shape.out_cols + col]);
        sum += term;
        size += std::abs(term);
      }
      // Every addition rounds once, by at most 2^-24 of the sum of sizes; integers are exact.
      const double tolerance = static_cast<double>(shape.in_cols) * 0x1p-24 * size;
      const double got =
          static_cast<double>(first_out_[static_cast<size_t>(row * shape.out_cols + col)]);
      if (!(std::abs(got - sum) <= tolerance)) return false;
    }
    return true;
  }

  std::string implementation() const override { return implementation_; }

 private:
  using Left = typename Kind::Left;
  using Right = typename Kind::Right;
  using Out = typename Kind::Out;
  struct Step {
    dnnl::matmul product;
    memory x, out;
  };

  int Draw() { return static_cast<int>(random_() % 129) - 64; }

  dnnl::matmul::primitive_desc Describe(const Shape& shape, int64_t rows) {
    const memory::desc x({rows, shape.in_cols}, Kind::kLeft, memory::format_tag::ab);
    const memory::desc w({shape.in_cols, shape.out_cols}, Kind::kRight, memory::format_tag::any);
    const memory::desc out({rows, shape.out_cols}, Kind::kOut, memory::format_tag::ab);
    return {dnnl::matmul::desc(x, w, out), engine_};
  }

  // The same values in every layer: only where they lie matters.
  void Pack(size_t p, const memory::desc& packed) {
    const Shape shape = shapes_[p];
    std::vector<Right> values(static_cast<size_t>(shape.in_cols * shape.out_cols));
    for (auto& value : values) value = Kind::MakeRight(Draw());
    memory plain({{shape.in_cols, shape.out_cols}, Kind::kRight, memory::format_tag::ab}, engine_,
                 values.data());
    for (auto& layer : packed_) {
      layer[p] = memory(packed, engine_);
      dnnl::reorder(plain, layer[p]).execute(stream_, plain, layer[p]);
      stream_.wait();
    }
  }

  const int threads_;
  const std::vector<Shape> shapes_;
  const int64_t layers_;
  int64_t rows_ = 0, widest_in_ = 0, widest_out_ = 0;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::minstd_rand random_;
  std::vector<std::vector<memory>> packed_;  // [layer][projection]
  std::vector<Left> x_;                      // read by every projection with its own width
  std::vector<Out> out_, first_out_;
  std::vector<Step> steps_;
  std::string implementation_;
};

template <class Kind>
std::unique_ptr<OnednnFloor> MakeIfThere(const ModelConfig& config, int threads) {
  try {
    return std::make_unique<Floor<Kind>>(config, threads);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace

double ProjectionWork(const ModelConfig& config) {
  double work = 0;
  for (const Shape& shape : Projections(config))
    work += 2.0 * static_cast<double>(shape.in_cols * shape.out_cols);
  return work * static_cast<double>(config.layers.size());
}

std::unique_ptr<OnednnFloor> MakeOnednnFloor(const ModelConfig& config, const std::string& dtype,
                                             int threads) {
  if (dtype == "int8") return MakeIfThere<Int8>(config, threads);
  if (dtype == "bfloat16") return MakeIfThere<Bfloat16>(config, threads);
  return MakeIfThere<Float32>(config, threads);
}

}  // namespace sysone
