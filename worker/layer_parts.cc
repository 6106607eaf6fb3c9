// SPDX-License-Identifier: Apache-2.0
#include "worker/layer_parts.h"

#include <algorithm>
#include <cmath>

#include "worker/weight_reader.h"

namespace sysone {
namespace {

Result<std::unique_ptr<Vector>> LoadNamedVector(const PartSource& source,
                                                const std::string& pattern, int64_t size) {
  SYSONE_ASSIGN_OR_RETURN(const std::vector<float> values,
                          ReadVector(source.tensors, LayerTensorName(pattern, source.layer), size));
  return source.backend.LoadVector(values);
}

Result<const TensorInfo*> LayerMatrix(const PartSource& source, const std::string& pattern,
                                      int64_t rows, int64_t cols) {
  return source.tensors.Get(LayerTensorName(pattern, source.layer), {rows, cols});
}

class Attention final : public LayerPart {
 public:
  static Result<std::unique_ptr<LayerPart>> Load(const PartSource& source) {
    const ModelConfig& config = source.config;
    auto part = std::make_unique<Attention>(source.rope, source.layer);
    part->eps_ = config.norm_eps;
    part->shape_ = {config.heads, config.kv_heads, config.head_dim,
                    1 / std::sqrt(static_cast<float>(config.head_dim))};
    SYSONE_ASSIGN_OR_RETURN(part->norm_,
                            LoadNamedVector(source, config.names.mixer_norm, config.hidden));
    SYSONE_RETURN_IF_ERROR(part->LoadProjections(source));
    if (config.qkv_bias) SYSONE_RETURN_IF_ERROR(part->LoadBias(source));
    if (config.qk_norm) {
      SYSONE_ASSIGN_OR_RETURN(part->q_norm_,
                              LoadNamedVector(source, config.names.q_norm, config.head_dim));
      SYSONE_ASSIGN_OR_RETURN(part->k_norm_,
                              LoadNamedVector(source, config.names.k_norm, config.head_dim));
    }
    return std::unique_ptr<LayerPart>(std::move(part));
  }

  Attention(const RopeTable& rope, size_t layer) : rope_(rope), layer_(layer) {}

  void Apply(const PassContext& pass) const override {
    Backend& backend = pass.backend;
    Workspace& work = pass.work;
    const int32_t rows = pass.plan.rows();
    KvStore& kv = *work.kv[layer_];
    backend.RmsNorm(*work.x, *norm_, eps_, {0, rows}, *work.normed);
    backend.MatMul(*work.normed, *qkv_, qkv_bias_.get(), rows, *work.qkv);
    backend.NormRope(*work.qkv, shape_, rope_, q_norm_.get(), k_norm_.get(), eps_, pass.plan);
    backend.StoreKv(*work.qkv, shape_, pass.plan, kv);
    if (pass.reads) {
      backend.SelectRows(*work.qkv, pass.reads->rows(), *work.read_qkv);
      backend.Attend(*work.read_qkv, shape_, pass.reads->plan(), kv, *work.mixed);
    } else {
      backend.Attend(*work.qkv, shape_, pass.plan, kv, *work.mixed);
    }
    backend.MatMulAdd(*work.mixed, *out_, {0, pass.rows()}, pass.x());
  }

 private:
  Status LoadProjections(const PartSource& source) {
    const ModelConfig& config = source.config;
    const int64_t hidden = config.hidden;
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* q,
                            LayerMatrix(source, config.names.q, shape_.q_cols(), hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* k,
                            LayerMatrix(source, config.names.k, shape_.kv_cols(), hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* v,
                            LayerMatrix(source, config.names.v, shape_.kv_cols(), hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* o,
                            LayerMatrix(source, config.names.o, hidden, shape_.q_cols()));
    const int32_t interleaved = config.qk_rows_interleaved ? config.head_dim : 0;
    qkv_ = source.backend.LoadWeight(shape_.qkv_cols(), hidden,
                                     StackRows({{q, interleaved}, {k, interleaved}, {v, 0}}));
    out_ = source.backend.LoadWeight(hidden, shape_.q_cols(), StackRows({{o, 0}}));
    return {};
  }

  Status LoadBias(const PartSource& source) {
    const TensorNames& names = source.config.names;
    const int32_t interleaved = source.config.qk_rows_interleaved ? source.config.head_dim : 0;
    const auto read = [&](const std::string& pattern, int64_t size) {
      return ReadVector(source.tensors, LayerTensorName(pattern, source.layer), size);
    };
    SYSONE_ASSIGN_OR_RETURN(std::vector<float> bias, read(names.q_bias, shape_.q_cols()));
    SYSONE_ASSIGN_OR_RETURN(std::vector<float> k, read(names.k_bias, shape_.kv_cols()));
    SYSONE_ASSIGN_OR_RETURN(const std::vector<float> v, read(names.v_bias, shape_.kv_cols()));
    bias = DeinterleavedValues(std::move(bias), interleaved);
    k = DeinterleavedValues(std::move(k), interleaved);
    bias.insert(bias.end(), k.begin(), k.end());
    bias.insert(bias.end(), v.begin(), v.end());
    qkv_bias_ = source.backend.LoadVector(bias);
    return {};
  }

  const RopeTable& rope_;
  const size_t layer_;
  AttentionShape shape_;
  float eps_ = 0;
  std::unique_ptr<Vector> norm_, qkv_bias_, q_norm_, k_norm_;
  std::unique_ptr<Weight> qkv_, out_;
};

class GatedSiluPart final : public LayerPart {
 public:
  static Result<std::unique_ptr<LayerPart>> Load(const PartSource& source) {
    const ModelConfig& config = source.config;
    const int64_t hidden = config.hidden;
    const int64_t wide = config.intermediate;
    auto part = std::make_unique<GatedSiluPart>();
    part->eps_ = config.norm_eps;
    SYSONE_ASSIGN_OR_RETURN(part->norm_,
                            LoadNamedVector(source, config.names.feed_forward_norm, hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* gate,
                            LayerMatrix(source, config.names.gate, wide, hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* up,
                            LayerMatrix(source, config.names.up, wide, hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* down,
                            LayerMatrix(source, config.names.down, hidden, wide));
    part->gate_up_ = source.backend.LoadWeight(2 * wide, hidden, StackRows({{gate, 0}, {up, 0}}));
    part->down_ = source.backend.LoadWeight(hidden, wide, StackRows({{down, 0}}));
    return std::unique_ptr<LayerPart>(std::move(part));
  }

  void Apply(const PassContext& pass) const override {
    Workspace& work = pass.work;
    const int32_t rows = pass.rows();
    for (int32_t first = 0; first < rows; first += kFeedForwardRows) {
      const RowRange slice{first, std::min(kFeedForwardRows, rows - first)};
      pass.backend.RmsNorm(pass.x(), *norm_, eps_, slice, *work.normed);
      pass.backend.MatMul(*work.normed, *gate_up_, nullptr, slice.count, *work.gate_up);
      pass.backend.GatedSilu(*work.gate_up, slice.count, *work.gated);
      pass.backend.MatMulAdd(*work.gated, *down_, slice, pass.x());
    }
  }

 private:
  float eps_ = 0;
  std::unique_ptr<Vector> norm_;
  std::unique_ptr<Weight> gate_up_, down_;
};

}  // namespace

Result<std::unique_ptr<LayerPart>> LoadAttention(const PartSource& source) {
  return Attention::Load(source);
}
Result<std::unique_ptr<LayerPart>> LoadGatedSilu(const PartSource& source) {
  return GatedSiluPart::Load(source);
}

}  // namespace sysone
