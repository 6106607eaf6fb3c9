// SPDX-License-Identifier: Apache-2.0
#include "worker/layer_parts.h"

#include <algorithm>

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

TensorSlice HeadRows(ShardRange heads, int32_t head_dim) {
  return {int64_t{heads.begin} * head_dim, int64_t{heads.count()} * head_dim};
}

class Attention final : public LayerPart {
 public:
  static Result<std::unique_ptr<LayerPart>> Load(const PartSource& source) {
    const ModelConfig& config = source.config;
    auto part = std::make_unique<Attention>(source.rope, source.layer);
    part->eps_ = config.norm_eps;
    part->shape_ = ShardAttention(config, source.shard);
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
    const PassPlan& plan = pass.inputs.plan;
    const int32_t rows = plan.rows();
    KvStore& kv = *work.kv[layer_];
    backend.RmsNorm(*work.x, *norm_, eps_, {0, rows}, *work.normed);
    backend.MatMul(*work.normed, *qkv_, qkv_bias_.get(), rows, *work.qkv);
    backend.NormRopeStoreKv(*work.qkv, shape_, rope_, q_norm_.get(), k_norm_.get(), eps_, plan, kv);
    if (pass.reads_only) {
      backend.SelectRows(*work.qkv, pass.inputs.read_rows, *work.read_qkv);
      backend.Attend(*work.read_qkv, shape_, pass.inputs.read_plan, kv, *work.mixed);
    } else {
      backend.Attend(*work.qkv, shape_, plan, kv, *work.mixed);
    }
    pass.AddProduct(*work.mixed, *out_, {0, pass.rows()});
  }

 private:
  Status LoadProjections(const PartSource& source) {
    const ModelConfig& config = source.config;
    const int64_t hidden = config.hidden;
    const int64_t q_rows = int64_t{config.heads} * config.head_dim;
    const int64_t kv_rows = int64_t{config.kv_heads} * config.head_dim;
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* q,
                            LayerMatrix(source, config.names.q, q_rows, hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* k,
                            LayerMatrix(source, config.names.k, kv_rows, hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* v,
                            LayerMatrix(source, config.names.v, kv_rows, hidden));
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* o,
                            LayerMatrix(source, config.names.o, hidden, q_rows));
    const int32_t interleaved = config.qk_rows_interleaved ? config.head_dim : 0;
    const TensorSlice heads = HeadRows(source.shard.heads, config.head_dim);
    const TensorSlice kv_heads = HeadRows(source.shard.kv_heads, config.head_dim);
    qkv_ = source.backend.LoadWeight(
        shape_.qkv_cols(), hidden,
        StackRows({{q, interleaved, heads}, {k, interleaved, kv_heads}, {v, 0, kv_heads}}));
    out_ = source.backend.LoadWeight(hidden, shape_.q_cols(), StackRows({{o, 0, {}, heads}}));
    return {};
  }

  Status LoadBias(const PartSource& source) {
    const TensorNames& names = source.config.names;
    const int32_t interleaved = source.config.qk_rows_interleaved ? source.config.head_dim : 0;
    const int32_t dim = source.config.head_dim;
    std::vector<float> bias;
    const auto add = [&](const std::string& pattern, int32_t all_heads, ShardRange heads,
                         int32_t interleaved_dim) -> Status {
      SYSONE_ASSIGN_OR_RETURN(std::vector<float> values,
                              ReadVector(source.tensors, LayerTensorName(pattern, source.layer),
                                         int64_t{all_heads} * dim));
      values = DeinterleavedValues(std::move(values), interleaved_dim);
      bias.insert(bias.end(), values.begin() + heads.begin * dim, values.begin() + heads.end * dim);
      return {};
    };
    const ModelConfig& config = source.config;
    const Shard& shard = source.shard;
    SYSONE_RETURN_IF_ERROR(add(names.q_bias, config.heads, shard.heads, interleaved));
    SYSONE_RETURN_IF_ERROR(add(names.k_bias, config.kv_heads, shard.kv_heads, interleaved));
    SYSONE_RETURN_IF_ERROR(add(names.v_bias, config.kv_heads, shard.kv_heads, 0));
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
    const TensorSlice own{source.shard.intermediate.begin, source.shard.intermediate.count()};
    part->gate_up_ =
        source.backend.LoadWeight(2 * own.count, hidden, StackRows({{gate, 0, own}, {up, 0, own}}));
    part->down_ = source.backend.LoadWeight(hidden, own.count, StackRows({{down, 0, {}, own}}));
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
      pass.AddProduct(*work.gated, *down_, slice);
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
