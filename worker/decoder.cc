// SPDX-License-Identifier: Apache-2.0
#include "worker/decoder.h"

#include <algorithm>

#include "worker/layer_parts.h"
#include "worker/rope.h"
#include "worker/weight_reader.h"

namespace sysone {
namespace {

Result<std::unique_ptr<LayerPart>> LoadMixer(MixerKind kind, const PartSource& source) {
  switch (kind) {
    case MixerKind::kAttention:
      return LoadAttention(source);
  }
  return Error(Code::kUnsupported, "layer %zu: unknown token mixer", source.layer);
}

Result<std::unique_ptr<LayerPart>> LoadFeedForward(FeedForwardKind kind, const PartSource& source) {
  switch (kind) {
    case FeedForwardKind::kGatedSilu:
      return LoadGatedSilu(source);
  }
  return Error(Code::kUnsupported, "layer %zu: unknown feed-forward part", source.layer);
}

Workspace MakeWorkspace(Backend& backend, const ModelConfig& config, const DecoderLimits& limits) {
  const int64_t rows = limits.max_rows;
  const int64_t slice = std::min(limits.max_rows, kFeedForwardRows);
  const int64_t q_cols = static_cast<int64_t>(config.heads) * config.head_dim;
  const int64_t kv_cols = static_cast<int64_t>(config.kv_heads) * config.head_dim;
  Workspace work;
  work.x = backend.NewTensor(rows, config.hidden);
  work.normed = backend.NewOperand(rows, config.hidden);
  work.qkv = backend.NewTensor(rows, q_cols + 2 * kv_cols);
  work.mixed = backend.NewOperand(rows, q_cols);
  for (size_t layer = 0; layer < config.layers.size(); ++layer)
    work.kv.push_back(backend.NewKvStore(limits.kv_rows > 0 ? limits.kv_rows : rows,
                                         {config.heads, config.kv_heads, config.head_dim, 0}));
  work.gate_up = backend.NewTensor(slice, 2 * static_cast<int64_t>(config.intermediate));
  work.gated = backend.NewOperand(slice, config.intermediate);
  work.read_qkv = backend.NewTensor(limits.max_reads, q_cols + 2 * kv_cols);
  work.read_x = backend.NewTensor(limits.max_reads, config.hidden);
  work.read_normed = backend.NewTensor(limits.max_reads, config.hidden);
  return work;
}

Result<std::unique_ptr<Table>> LoadNamedTable(Backend& backend, const TensorIndex& tensors,
                                              const std::string& name, int64_t rows, int64_t cols) {
  SYSONE_ASSIGN_OR_RETURN(const TensorInfo* tensor, tensors.Get(name, {rows, cols}));
  return backend.LoadTable(rows, cols, StackRows({{tensor, 0}}));
}

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::Load(Backend& backend, const ModelConfig& config,
                                               const TensorIndex& tensors,
                                               const DecoderLimits& limits,
                                               const std::function<void(double)>& progress) {
  std::unique_ptr<Decoder> decoder(new Decoder(backend, limits));
  decoder->hidden_ = config.hidden;
  decoder->norm_eps_ = config.norm_eps;
  const TensorNames& names = config.names;
  SYSONE_ASSIGN_OR_RETURN(
      decoder->head_,
      LoadNamedTable(backend, tensors, config.tied_head ? names.embedding : names.head,
                     config.vocab, config.hidden));
  if (!config.tied_head) {
    SYSONE_ASSIGN_OR_RETURN(const TensorInfo* tensor,
                            tensors.Get(names.embedding, {config.vocab, config.hidden}));
    decoder->embedding_ = std::make_unique<StoredRows>(*tensor);
  }
  SYSONE_ASSIGN_OR_RETURN(const std::vector<float> final_norm,
                          ReadVector(tensors, names.final_norm, config.hidden));
  decoder->final_norm_ = backend.LoadVector(final_norm);
  const RopeValues rope = MakeRopeValues(config.rope, config.head_dim, limits.max_positions);
  decoder->rope_ = backend.LoadRope(config.head_dim, rope.cos, rope.sin);

  for (size_t i = 0; i < config.layers.size(); ++i) {
    const PartSource source{backend, config, tensors, *decoder->rope_, i};
    DecoderLayer layer;
    SYSONE_ASSIGN_OR_RETURN(layer.mixer, LoadMixer(config.layers[i].mixer, source));
    SYSONE_ASSIGN_OR_RETURN(layer.feed_forward,
                            LoadFeedForward(config.layers[i].feed_forward, source));
    decoder->layers_.push_back(std::move(layer));
    progress(static_cast<double>(i + 1) / static_cast<double>(config.layers.size()));
  }
  decoder->work_ = MakeWorkspace(backend, config, limits);
  return decoder;
}

void Decoder::Embed(std::span<const TokenId> ids) {
  if (!embedding_) return backend_.Embed(*head_, ids, *work_.x);
  embedded_.resize(ids.size() * static_cast<size_t>(hidden_));
  embedding_->Read(ids, embedded_);
  backend_.Upload(embedded_, static_cast<int32_t>(ids.size()), *work_.x);
}

void Decoder::Compute(const Pass& pass, std::span<float> states) {
  const int32_t rows = pass.rows();
  const int32_t reads = static_cast<int32_t>(pass.read_rows().size());
  SYSONE_CHECK(rows <= limits_.max_rows, "a pass of %d rows exceeds the buffers' %d", rows,
               limits_.max_rows);
  SYSONE_CHECK(reads <= limits_.max_reads, "a pass of %d reads exceeds the buffers' %d", reads,
               limits_.max_reads);
  const PassPlan plan = pass.plan();
  reads_.Build(plan, pass.read_rows());
  PassContext context{backend_, work_, plan};

  Embed(pass.tokens());
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i + 1 == layers_.size() && !observe_) {
      backend_.SelectRows(*work_.x, pass.read_rows(), *work_.read_x);
      context.reads = &reads_;
    }
    layers_[i].mixer->Apply(context);
    layers_[i].feed_forward->Apply(context);
    if (observe_) {
      std::vector<float> x(static_cast<size_t>(rows) * static_cast<size_t>(hidden_));
      backend_.Download(*work_.x, rows, x);
      observe_(i, x);
    }
  }
  if (observe_) backend_.SelectRows(*work_.x, pass.read_rows(), *work_.read_x);
  backend_.Download(*work_.read_x, reads, states);
}

void Decoder::ReadOut(const Pass& pass, std::span<const float> states,
                      std::span<float> label_logits, std::span<HeadSummary> summaries) {
  const int32_t count = pass.states();
  SYSONE_CHECK(count <= limits_.max_reads, "%d states exceed the buffers' %d", count,
               limits_.max_reads);
  backend_.Upload(states, count, *work_.read_x);
  backend_.FinalNorm(*work_.read_x, *final_norm_, norm_eps_, count, *work_.read_normed);
  backend_.LabelLogits(*work_.read_normed, *head_, pass.label_states(), pass.label_ids(),
                       label_logits);
  if (pass.summarize_head()) backend_.SummarizeHead(*work_.read_normed, *head_, count, summaries);
}

void Decoder::Forward(const Pass& pass, std::span<float> label_logits,
                      std::span<HeadSummary> summaries) {
  SYSONE_CHECK(pass.stored_blocks().empty(), "Forward has no stored states");
  states_.resize(static_cast<size_t>(pass.states()) * static_cast<size_t>(hidden_));
  Compute(pass, states_);
  ReadOut(pass, states_, label_logits, summaries);
}

}  // namespace sysone
