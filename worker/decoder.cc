// SPDX-License-Identifier: Apache-2.0
#include "worker/decoder.h"

#include <algorithm>
#include <cmath>

#include "worker/layer_parts.h"
#include "worker/rope.h"
#include "worker/weight_reader.h"

namespace sysone {
namespace {

// As a collective of devices names it.
constexpr char kStep[] = "a pass of rows";

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

Workspace MakeWorkspace(Backend& backend, const ModelConfig& config, const Shard& shard,
                        const DecoderLimits& limits) {
  const int64_t rows = backend.PassRows(limits.max_rows);
  const int64_t reads = backend.PassReads(limits.max_reads);
  const int64_t slice = std::min<int64_t>(rows, kFeedForwardRows);
  const AttentionShape shape = ShardAttention(config, shard);
  const int64_t wide = shard.intermediate.count();
  Workspace work;
  work.x = backend.NewTensor(rows, config.hidden);
  work.normed = backend.NewOperand(rows, config.hidden);
  work.qkv = backend.NewTensor(rows, shape.qkv_cols());
  work.mixed = backend.NewOperand(rows, shape.q_cols());
  work.gate_up = backend.NewTensor(slice, 2 * wide);
  work.gated = backend.NewOperand(slice, wide);
  work.read_qkv = backend.NewTensor(reads, shape.qkv_cols());
  work.read_x = backend.NewTensor(reads, config.hidden);
  work.read_normed = backend.NewTensor(reads, config.hidden);
  return work;
}

}  // namespace

void PassContext::AddProduct(const Operand& in, const Weight& weight, RowRange rows) const {
  if (ranks.rank() != 0) backend.Clear(x(), rows);
  backend.MatMulAdd(in, weight, rows, x());
  if (ranks.size() > 1) ranks.SumTensor(backend.Memory(x(), rows));
}

Result<std::unique_ptr<Decoder>> Decoder::Load(Backend& backend, const ModelConfig& config,
                                               const TensorIndex& tensors,
                                               const DecoderLimits& limits,
                                               const std::function<void(double)>& progress,
                                               Collective* ranks) {
  std::unique_ptr<Decoder> decoder(new Decoder(backend, limits, ranks));
  SYSONE_ASSIGN_OR_RETURN(decoder->shard_,
                          PlanShard(config, decoder->ranks_.rank(), decoder->ranks_.size()));
  decoder->hidden_ = config.hidden;
  decoder->norm_eps_ = config.norm_eps;
  backend.SetWeightGrain(WeightGrainOf(tensors, config.names));
  SYSONE_RETURN_IF_ERROR(decoder->LoadTables(config, tensors));
  SYSONE_ASSIGN_OR_RETURN(const std::vector<float> final_norm,
                          ReadVector(tensors, config.names.final_norm, config.hidden));
  decoder->final_norm_ = backend.LoadVector(final_norm);
  const RopeValues rope = MakeRopeValues(config.rope, config.head_dim, limits.max_positions);
  decoder->rope_ = backend.LoadRope(config.head_dim, rope.cos, rope.sin);

  for (size_t i = 0; i < config.layers.size(); ++i) {
    const PartSource source{backend, config, tensors, *decoder->rope_, decoder->shard_, i};
    DecoderLayer layer;
    SYSONE_ASSIGN_OR_RETURN(layer.mixer, LoadMixer(config.layers[i].mixer, source));
    SYSONE_ASSIGN_OR_RETURN(layer.feed_forward,
                            LoadFeedForward(config.layers[i].feed_forward, source));
    decoder->layers_.push_back(std::move(layer));
    progress(static_cast<double>(i + 1) / static_cast<double>(config.layers.size()));
  }
  decoder->work_ = MakeWorkspace(backend, config, decoder->shard_, limits);
  decoder->shapes_.assign(config.layers.size(), ShardAttention(config, decoder->shard_));
  decoder->RecordAnew();
  if (limits.kv_rows != kKvRowsLater)
    decoder->MakeKvStores(limits.kv_rows > 0 ? limits.kv_rows : limits.max_rows);
  SYSONE_RETURN_IF_ERROR(backend.MemoryStatus());
  return decoder;
}

void Decoder::RecordAnew() {
  recorded_ = backend_.NewRecordedPasses([this](bool own) {
    std::vector<uint64_t> all(static_cast<size_t>(ranks_.size()));
    ranks_.AllGather(own, all);
    return std::ranges::count(all, 0u) == 0;
  });
}

void Decoder::MakeKvStores(int32_t rows) {
  SYSONE_CHECK(work_.kv.empty(), "the stores are there");
  for (const AttentionShape& shape : shapes_) work_.kv.push_back(backend_.NewKvStore(rows, shape));
}

Status Decoder::LoadTables(const ModelConfig& config, const TensorIndex& tensors) {
  vocabulary_ = config.vocab;
  const TensorNames& names = config.names;
  const TensorSlice own{shard_.vocabulary.begin, shard_.vocabulary.count()};
  SYSONE_ASSIGN_OR_RETURN(
      const TensorInfo* head,
      tensors.Get(config.tied_head ? names.embedding : names.head, {config.vocab, config.hidden}));
  head_ = backend_.LoadTable(own.count, config.hidden, StackRows({{head, 0, own}}));
  if (config.tied_head) return {};
  SYSONE_ASSIGN_OR_RETURN(const TensorInfo* embedding,
                          tensors.Get(names.embedding, {config.vocab, config.hidden}));
  embedding_ = std::make_unique<StoredRows>(*embedding, own.first, own.count);
  return {};
}

TokenId Decoder::Own(TokenId id) const {
  if (id == kNoToken) return kNoToken;
  SYSONE_CHECK(id >= 0 && id < vocabulary_, "token %d of %d", id, vocabulary_);
  const bool own = id >= shard_.vocabulary.begin && id < shard_.vocabulary.end;
  return own ? id - shard_.vocabulary.begin : kNoToken;
}

void Decoder::FindLabels(const BatchReads& reads, int32_t first, int32_t count) {
  label_reads_.assign(reads.label_ids.size(), 0);
  label_ids_.assign(reads.label_ids.size(), kNoToken);
  for (size_t i = 0; i < label_ids_.size(); ++i) {
    const int32_t read = reads.label_states[i] - first;
    if (read < 0 || read >= count) continue;
    label_reads_[i] = read;
    label_ids_[i] = Own(reads.label_ids[i]);
  }
}

void Decoder::EmbedStored(std::span<const TokenId> own_ids) {
  embedded_.resize(own_ids.size() * static_cast<size_t>(hidden_));
  embedding_->Read(own_ids, embedded_);
  backend_.Upload(embedded_, static_cast<int32_t>(own_ids.size()), *work_.x);
}

void Decoder::SumRows(Tensor& x, int32_t rows) {
  if (ranks_.size() > 1) ranks_.SumTensor(backend_.Memory(x, {0, rows}));
}

void Decoder::RunLayers(const PassInputs& inputs) {
  PassContext context{backend_, ranks_, work_, inputs};
  if (!embedding_) backend_.Embed(*head_, inputs.tokens, *work_.x);
  // One rank has the row, the others zeros.
  SumRows(*work_.x, inputs.plan.rows());
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (i + 1 == layers_.size() && !observe_) {
      backend_.SelectRows(*work_.x, inputs.read_rows, *work_.read_x);
      context.reads_only = true;
    }
    layers_[i].mixer->Apply(context);
    layers_[i].feed_forward->Apply(context);
    if (observe_) {
      std::vector<float> x(inputs.tokens.size() * static_cast<size_t>(hidden_));
      backend_.Download(*work_.x, inputs.plan.rows(), x);
      observe_(i, x);
    }
  }
  if (observe_) backend_.SelectRows(*work_.x, inputs.read_rows, *work_.read_x);
}

void Decoder::Run(const BatchRows& rows, const BatchReads& reads, std::span<float> states,
                  std::span<float> label_logits, std::span<HeadSummary> summaries) {
  const auto computed = static_cast<int32_t>(rows.read_rows.size());
  SYSONE_CHECK(rows.plan.rows() <= limits_.max_rows, "a pass of %d rows exceeds the buffers' %d",
               rows.plan.rows(), limits_.max_rows);
  SYSONE_CHECK(reads.states <= limits_.max_reads, "%d states exceed the buffers' %d", reads.states,
               limits_.max_reads);
  ranks_.BeginStep(++passes_, kStep, rows.plan.rows());
  const std::span<float> logits = label_logits.first(reads.label_ids.size());
  if (rows.plan.rows() > 0) {
    RunRows(rows, reads, states, logits);
    if (reads.summarize_head) Summarize(summaries.first(rows.read_rows.size()));
  }
  if (reads.states > computed) {
    ReadStored(reads, computed, states, logits);
    if (reads.summarize_head)
      Summarize(
          summaries.subspan(rows.read_rows.size(), static_cast<size_t>(reads.states - computed)));
  }
  ranks_.AllReduceSum(logits);
  ranks_.EndStep();
}

void Decoder::RunRows(const BatchRows& rows, const BatchReads& reads, std::span<float> states,
                      std::span<float> label_logits) {
  const auto computed = static_cast<int32_t>(rows.read_rows.size());
  const auto hidden = static_cast<size_t>(hidden_);
  tokens_.resize(rows.tokens.size());
  std::ranges::transform(rows.tokens, tokens_.begin(), [this](TokenId id) { return Own(id); });
  reads_.Build(rows.plan, rows.read_rows);
  FindLabels(reads, 0, computed);
  PassInputs own{tokens_, rows.plan, rows.read_rows, reads_.plan(), {}, {}};
  PassResults results;
  if (computed > 0) {
    own.label_reads = label_reads_;
    own.label_ids = label_ids_;
    results = {label_logits, states.first(rows.read_rows.size() * hidden)};
  }
  const auto run = [this](const PassInputs& inputs, const PassResults& to) {
    RunLayers(inputs);
    const int32_t count = inputs.read_plan.rows();
    if (count == 0) return;
    ReadOut(count, inputs.label_reads, inputs.label_ids, to.label_logits);
    backend_.Download(*work_.read_x, count, to.states);
  };
  if (observe_) {
    // Looks at every layer from the host, which no pass that is run as a whole allows.
    if (embedding_) EmbedStored(own.tokens);
    return run(own, results);
  }
  const int32_t padded_reads = backend_.PassReads(computed);
  const PassInputs inputs =
      padded_.Pad(own, backend_.PassRows(rows.plan.rows()), padded_reads,
                  backend_.PassLabels(static_cast<int32_t>(own.label_ids.size()), padded_reads));
  const PassResults room =
      padded_.Room(results, inputs.label_ids.size(), static_cast<size_t>(padded_reads) * hidden);
  if (embedding_) EmbedStored(inputs.tokens);
  backend_.RunPass(inputs, room, recorded_.get(), [&] { run(inputs, room); });
  padded_.Return(room, results);
}

void Decoder::ReadStored(const BatchReads& reads, int32_t first, std::span<const float> states,
                         std::span<float> label_logits) {
  const int32_t count = reads.states - first;
  const auto floats = static_cast<size_t>(hidden_);
  backend_.Upload(states.subspan(static_cast<size_t>(first) * floats), count, *work_.read_x);
  FindLabels(reads, first, count);
  stored_logits_.resize(label_logits.size());
  ReadOut(count, label_reads_, label_ids_, stored_logits_);
  for (size_t i = 0; i < label_logits.size(); ++i)
    if (reads.label_states[i] >= first) label_logits[i] = stored_logits_[i];
}

void Decoder::ReadOut(int32_t count, std::span<const int32_t> label_reads,
                      std::span<const TokenId> label_ids, std::span<float> label_logits) {
  backend_.FinalNorm(*work_.read_x, *final_norm_, norm_eps_, count, *work_.read_normed);
  backend_.LabelLogits(*work_.read_normed, *head_, label_reads, label_ids, label_logits);
}

void Decoder::Summarize(std::span<HeadSummary> summaries) {
  const auto count = static_cast<int32_t>(summaries.size());
  if (count == 0) return;
  backend_.SummarizeHead(*work_.read_normed, *head_, count, summaries);
  if (ranks_.size() > 1) SummarizeOverRanks(count, summaries);
}

// From the ranks' summaries of their own rows of the head, one of all rows: each rank fills its place
// of a sum [ranks, states, (log_sum_exp, largest logit, its token)]. A token's number is exact as a
// float up to 2^24.
void Decoder::SummarizeOverRanks(int32_t states, std::span<HeadSummary> summaries) {
  const auto count = static_cast<size_t>(states);
  std::vector<int32_t> state(count);
  ids_.resize(count);
  for (size_t s = 0; s < count; ++s) {
    state[s] = static_cast<int32_t>(s);
    ids_[s] = summaries[s].argmax;
  }
  best_.resize(count);
  backend_.LabelLogits(*work_.read_normed, *head_, state, ids_, best_);
  gathered_.assign(static_cast<size_t>(ranks_.size()) * count * 3, 0);
  const auto of = [&](int32_t rank, size_t s) {
    return gathered_.data() + (static_cast<size_t>(rank) * count + s) * 3;
  };
  for (size_t s = 0; s < count; ++s) {
    float* const own = of(ranks_.rank(), s);
    own[0] = summaries[s].log_sum_exp;
    own[1] = best_[s];
    own[2] = static_cast<float>(summaries[s].argmax + shard_.vocabulary.begin);
  }
  ranks_.AllReduceSum(gathered_);
  for (size_t s = 0; s < count; ++s) {
    const float* best = of(0, s);
    float largest = best[0];
    for (int32_t r = 1; r < ranks_.size(); ++r) {
      if (of(r, s)[1] > best[1]) best = of(r, s);
      largest = std::max(largest, of(r, s)[0]);
    }
    double total = 0;
    for (int32_t r = 0; r < ranks_.size(); ++r)
      total += std::exp(static_cast<double>(of(r, s)[0]) - largest);
    summaries[s] = {static_cast<float>(largest + std::log(total)), static_cast<TokenId>(best[2])};
  }
}

void Decoder::Forward(const Pass& pass, std::span<float> label_logits,
                      std::span<HeadSummary> summaries) {
  SYSONE_CHECK(pass.stored_blocks().empty(), "Forward has no stored states");
  states_.resize(static_cast<size_t>(pass.states()) * static_cast<size_t>(hidden_));
  Run(pass, states_, label_logits, summaries);
}

}  // namespace sysone
