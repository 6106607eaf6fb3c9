// A decoder-only transformer as a composition: per layer a token mixer and a feed-forward part,
// each with the norm before it, adding to the residual stream. Families differ by which parts they
// list, never by copies of this file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/tensor_index.h"
#include "worker/comm/collective.h"
#include "worker/padded_batch.h"
#include "worker/pass.h"
#include "worker/pass_model.h"
#include "worker/read_plan.h"
#include "worker/shard.h"
#include "worker/stored_rows.h"

namespace sysone {

struct DecoderLimits {
  int32_t max_rows = 8192;       // tokens a pass
  int32_t max_reads = 256;       // branches a pass
  int32_t max_positions = 8192;  // longest prompt
  int32_t kv_rows = 0;           // rows of every layer's store; 0: max_rows; or kKvRowsLater
};
// The stores are made by MakeKvStores, when it is known how much memory the rest took.
inline constexpr int32_t kKvRowsLater = -1;

// Buffers that the parts of all layers share, each made once. Rows as in the pass unless said
// otherwise; heads and intermediate are the rank's own.
struct Workspace {
  std::unique_ptr<Tensor> x;                 // [max_rows, hidden] the residual stream
  std::unique_ptr<Operand> normed;           // [max_rows, hidden]
  std::unique_ptr<Tensor> qkv;               // [max_rows, q | k | v]
  std::unique_ptr<Operand> mixed;            // [max_rows, heads * head_dim]
  std::vector<std::unique_ptr<KvStore>> kv;  // one a layer, [kv_rows]: they outlive the pass
  std::unique_ptr<Tensor> gate_up;           // [kFeedForwardRows, gate | up]
  std::unique_ptr<Operand> gated;            // [kFeedForwardRows, intermediate]
  // Of the rows that are read: the last layer goes on with these alone.
  std::unique_ptr<Tensor> read_qkv;     // [max_reads, q | k | v]
  std::unique_ptr<Tensor> read_x;       // [max_reads, hidden] the residual stream
  std::unique_ptr<Tensor> read_normed;  // [max_reads, hidden]
};

// What a part works with during one pass.
struct PassContext {
  Backend& backend;
  Collective& ranks;
  Workspace& work;
  const PassInputs& inputs;
  // Set in the last layer, where nothing but the rows that are read is wanted any more.
  bool reads_only = false;

  // The residual stream that a part adds to, and its rows in use.
  Tensor& x() const { return reads_only ? *work.read_x : *work.x; }
  int32_t rows() const { return (reads_only ? inputs.read_plan : inputs.plan).rows(); }

  // x()[rows] += in · Wᵀ, where each rank has some columns of `in` and W. Rank 0 adds its share to the stream; what the others
  // hold of the stream is the same, so they put their shares in its place, and the sum over the ranks is everybody's stream.
  void AddProduct(const Operand& in, const Weight& weight, RowRange rows) const;
};

// A part of a layer: x() += part(norm(x())). In the last layer a token mixer takes in all rows of work.x nevertheless, because
// later passes may continue them.
class LayerPart {
 public:
  virtual ~LayerPart() = default;
  virtual void Apply(const PassContext& pass) const = 0;
};

// A layer's two parts, in the order in which they are applied.
struct DecoderLayer {
  std::unique_ptr<LayerPart> mixer;
  std::unique_ptr<LayerPart> feed_forward;
};

// Used by one thread. Owns weights and buffers, of its rank's part of the model (worker/shard.h); `backend` and `ranks` must
// outlive it. With several ranks all call the same functions with the same batches, and all get the results.
class Decoder final : public PassModel {
 public:
  // Loads and packs every weight; `progress` is told the share done, 0 … 1, from the calling
  // thread. kCorrupt or kUnsupported names the tensor that is missing or has a wrong shape, kOutOfMemory says what the
  // backend's memory lacks. Without `ranks` the decoder is alone.
  static Result<std::unique_ptr<Decoder>> Load(Backend& backend, const ModelConfig& config,
                                               const TensorIndex& tensors,
                                               const DecoderLimits& limits,
                                               const std::function<void(double)>& progress,
                                               Collective* ranks = nullptr);

  // Once, before the first pass, and only with kKvRowsLater.
  void MakeKvStores(int32_t rows);

  // Forgets the passes that the backend keeps ready. All ranks, between the same two passes: after something that only some of
  // them would forget theirs for.
  void RecordAnew();

  int32_t hidden() const override { return hidden_; }
  void Run(const Pass& pass, std::span<float> states, std::span<float> label_logits,
           std::span<HeadSummary> summaries) override {
    Run(pass.batch_rows(), pass.batch_reads(), states, label_logits, summaries);
  }
  // The same for a batch that is not this process's own.
  void Run(const BatchRows& rows, const BatchReads& reads, std::span<float> states,
           std::span<float> label_logits, std::span<HeadSummary> summaries);
  // The same for a pass whose states are all its own, and wanted by nobody.
  void Forward(const Pass& pass, std::span<float> label_logits, std::span<HeadSummary> summaries);

  // For tests: the residual stream after each layer goes to `observe` (layer, x [rows, hidden])
  // during Run, which then computes all rows of the last layer, too.
  void ObserveLayers(std::function<void(size_t, std::span<const float>)> observe) {
    observe_ = std::move(observe);
  }

  const DecoderLimits& limits() const { return limits_; }

 private:
  Decoder(Backend& backend, const DecoderLimits& limits, Collective* ranks)
      : backend_(backend),
        alone_(ranks ? nullptr : MakeSoloCollective()),
        ranks_(ranks ? *ranks : *alone_),
        limits_(limits) {}

  Status LoadTables(const ModelConfig& config, const TensorIndex& tensors);
  // The rank's own row of embedding and head for `id`, or kNoToken, which `id` may also be.
  TokenId Own(TokenId id) const;
  // label_reads_ and label_ids_ = the labels at `count` states from `first` on; the others' are kNoToken.
  void FindLabels(const BatchReads& reads, int32_t first, int32_t count);
  // From the rows of the pass to the logits at their states; those of stored states are 0.
  void RunRows(const BatchRows& rows, const BatchReads& reads, std::span<float> states,
               std::span<float> label_logits);
  // Logits at the states from `first` on, which are stored.
  void ReadStored(const BatchReads& reads, int32_t first, std::span<const float> states,
                  std::span<float> label_logits);
  // The one recipe for both: of `count` rows of read_x, which FinalNorm leaves as they are.
  void ReadOut(int32_t count, std::span<const int32_t> label_reads,
               std::span<const TokenId> label_ids, std::span<float> label_logits);
  // Of the states that were read out last.
  void Summarize(std::span<HeadSummary> summaries);
  void SummarizeOverRanks(int32_t states, std::span<HeadSummary> summaries);

  Backend& backend_;
  const std::unique_ptr<Collective> alone_;  // ranks_, unless there are others
  Collective& ranks_;
  DecoderLimits limits_;
  Shard shard_;
  int32_t vocabulary_ = 0;
  int32_t hidden_ = 0;
  float norm_eps_ = 0;
  void EmbedStored(std::span<const TokenId> own_ids);
  void RunLayers(const PassInputs& inputs);
  void SumRows(Tensor& x, int32_t rows);

  std::unique_ptr<Table> head_;            // also the embedding, unless that is another tensor
  std::unique_ptr<StoredRows> embedding_;  // null when it is the head
  std::vector<float> embedded_;            // [rows, hidden] from there
  std::vector<TokenId> tokens_;            // of the pass, as of Own
  std::vector<int32_t> label_reads_;
  std::vector<TokenId> label_ids_;
  std::vector<float> stored_logits_;
  std::vector<TokenId> ids_;            // of SummarizeOverRanks
  std::vector<float> best_, gathered_;  // of SummarizeOverRanks
  std::unique_ptr<Vector> final_norm_;
  std::unique_ptr<RopeTable> rope_;
  std::vector<DecoderLayer> layers_;
  std::vector<AttentionShape> shapes_;  // of each layer
  Workspace work_;
  std::unique_ptr<RecordedPasses> recorded_;
  ReadPlan reads_;  // of the current pass, as padded_ is; kept for their memory
  PaddedBatch padded_;
  std::vector<float> states_;  // of Forward
  uint64_t passes_ = 0;
  std::function<void(size_t, std::span<const float>)> observe_;
};

}  // namespace sysone
