// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/made_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "kernels/bfloat16.h"

namespace sysone {
namespace {

struct Shape {
  const char* name;
  const char* family;
  int32_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  bool qkv_bias, qk_norm;
};
// As their published config.json files say.
constexpr Shape kShapes[] = {
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, false, true},
    {"qwen2.5-3b", "qwen2", 36, 2048, 16, 2, 128, 11008, 151936, true, false},
    {"tiny", "qwen3", 4, 128, 4, 2, 64, 256, 512, false, true},
};

// Values are repeated after so many: no multiple of any row's length, so rows differ.
constexpr size_t kDistinct = 1000003;

ModelConfig ConfigOf(const Shape& shape, int32_t layers) {
  ModelConfig config;
  config.family = shape.family;
  config.hidden = shape.hidden;
  config.heads = shape.heads;
  config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.intermediate = shape.intermediate;
  config.vocab = shape.vocab;
  config.max_positions = 32768;
  config.tied_head = true;
  config.qkv_bias = shape.qkv_bias;
  config.qk_norm = shape.qk_norm;
  config.rope.theta = 1e6;
  config.layers.resize(static_cast<size_t>(layers > 0 ? layers : shape.layers));
  config.names = HfTensorNames(config);
  return config;
}

// The tensors of a config, all of them in the same memory.
class Tensors {
 public:
  Tensors(const ModelConfig& config, const std::shared_ptr<std::vector<uint16_t>>& values,
          const std::shared_ptr<std::vector<float>>& ones)
      : values_(values), ones_(ones), hidden_(config.hidden) {}

  void Matrix(const std::string& name, int64_t rows, int64_t cols) {
    Grow(rows * cols);
    tensors_.push_back({name, TensorType::kBF16, {rows, cols}, nullptr, Bytes(rows * cols, 2)});
  }
  void Vector(const std::string& name, int64_t size, bool norm) {
    if (name.empty()) return;
    if (!norm) Grow(size);
    if (norm && static_cast<int64_t>(ones_->size()) < size)
      ones_->resize(static_cast<size_t>(size), 1.0f);
    tensors_.push_back({name,
                        norm ? TensorType::kF32 : TensorType::kBF16,
                        {size},
                        nullptr,
                        Bytes(size, norm ? 4 : 2)});
  }

  std::vector<TensorInfo> Take() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(hidden_)));
    for (size_t i = 0; i < values_->size(); ++i)
      (*values_)[i] = i < kDistinct ? ToBfloat16(normal(random)) : (*values_)[i - kDistinct];
    for (TensorInfo& tensor : tensors_)
      tensor.data = reinterpret_cast<const std::byte*>(tensor.type == TensorType::kF32
                                                           ? static_cast<const void*>(ones_->data())
                                                           : values_->data());
    return std::move(tensors_);
  }

 private:
  static size_t Bytes(int64_t count, int64_t each) { return static_cast<size_t>(count * each); }
  void Grow(int64_t count) {
    if (static_cast<int64_t>(values_->size()) < count) values_->resize(static_cast<size_t>(count));
  }

  std::shared_ptr<std::vector<uint16_t>> values_;
  std::shared_ptr<std::vector<float>> ones_;
  int64_t hidden_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

std::vector<std::string> MadeModelNames() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

Result<MadeModel> MakeModel(const std::string& name, int32_t layers) {
  const auto* const shape =
      std::ranges::find_if(kShapes, [&](const Shape& one) { return name == one.name; });
  if (shape == std::end(kShapes))
    return Error(Code::kInvalidArgument, "no shape '%s'", name.c_str());
  ModelConfig config = ConfigOf(*shape, layers);
  SYSONE_RETURN_IF_ERROR(CheckConfig(config));
  const TensorNames& names = config.names;
  const auto values = std::make_shared<std::vector<uint16_t>>();
  const auto ones = std::make_shared<std::vector<float>>();
  Tensors tensors(config, values, ones);
  tensors.Matrix(names.embedding, config.vocab, config.hidden);
  tensors.Vector(names.final_norm, config.hidden, true);
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto of = [i](const std::string& pattern) {
      return pattern.empty() ? pattern : LayerTensorName(pattern, i);
    };
    tensors.Vector(of(names.mixer_norm), config.hidden, true);
    tensors.Vector(of(names.feed_forward_norm), config.hidden, true);
    tensors.Matrix(of(names.q), q, config.hidden);
    tensors.Matrix(of(names.k), kv, config.hidden);
    tensors.Matrix(of(names.v), kv, config.hidden);
    tensors.Matrix(of(names.o), config.hidden, q);
    tensors.Vector(of(names.q_bias), q, false);
    tensors.Vector(of(names.k_bias), kv, false);
    tensors.Vector(of(names.v_bias), kv, false);
    tensors.Vector(of(names.q_norm), config.head_dim, true);
    tensors.Vector(of(names.k_norm), config.head_dim, true);
    tensors.Matrix(of(names.gate), config.intermediate, config.hidden);
    tensors.Matrix(of(names.up), config.intermediate, config.hidden);
    tensors.Matrix(of(names.down), config.hidden, config.intermediate);
  }
  TensorIndex index(tensors.Take(), {values, ones});
  SYSONE_RETURN_IF_ERROR(ValidateTensors(config, index));
  return MadeModel{std::move(config), std::move(index)};
}

}  // namespace sysone
