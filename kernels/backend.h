// The operations a forward pass is made of, over a packed batch of token rows. One abstract class; each backend (cpu,
// reference, later cuda) implements all of it, and one conformance suite (tests/kernels/) runs over every backend of the host.
//
// Two kinds of activations:
//   Tensor   the running values of the pass (residual stream, q/k/v, gate/up), in the backend's working precision.
//   Operand  the left side of a matrix product, in whatever encoding the backend multiplies fastest (float32, bfloat16,
//            int8 with a scale a row …). Only the operations that produce one (norms, attention, gates) know the encoding,
//            so quantisation is always fused into the producer.
//
// Exactness: an output row depends on its own inputs alone, never on how many rows or which others are in the batch, nor on
// where its keys lie in the store: bit for bit on CPUs. Everything that the engine promises about batching rests on this.
//
// Threads: one thread calls a backend. Objects must not outlive the backend that made them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/dtype.h"

namespace sysone {

using TokenId = int32_t;
// Stands for a row that a table does not hold: another rank does.
inline constexpr TokenId kNoToken = -1;
// Stands for the place of a key and value that are not stored.
inline constexpr int32_t kNoKvRow = -1;

// Opaque, owned by the caller, made by a backend.
class Weight {  // matrix [out_cols, in_cols], packed for MatMul
 public:
  virtual ~Weight() = default;
};
class Vector {  // a norm weight or a bias
 public:
  virtual ~Vector() = default;
};
class Table {  // matrix [vocab, hidden] read by single rows: embedding and head
 public:
  virtual ~Table() = default;
};
class RopeTable {  // cos and sin of every position
 public:
  virtual ~RopeTable() = default;
};
class Tensor {  // [max_rows, cols]
 public:
  virtual ~Tensor() = default;
};
class Operand {  // [max_rows, cols], encoded
 public:
  virtual ~Operand() = default;
};
class KvStore {  // keys and values of one layer: rows of [kv_heads * head_dim] each
 public:
  virtual ~KvStore() = default;
};

// Fills out[row_count * cols] with rows [first_row, first_row + row_count) as float32. Called from several threads at once.
using RowReader = std::function<void(int64_t first_row, int64_t row_count, float* out)>;

struct AttentionShape {
  int32_t heads = 0;
  int32_t kv_heads = 0;  // heads is a multiple
  int32_t head_dim = 0;
  float scale = 0;  // multiplies q·k
  int32_t q_cols() const { return heads * head_dim; }
  int32_t kv_cols() const { return kv_heads * head_dim; }
  int32_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }
};

// Consecutive rows of a KvStore that hold consecutive positions. They may begin at any row and be of any length.
struct KvSpan {
  int32_t first_row = 0;
  int32_t count = 0;
};

// Consecutive batch rows that belong to one sequence. Row i of the run has position first_position + i and sees exactly the
// positions 0 … first_position + i, which the spans list in order (the run's own rows are the last of them). Runs may share
// spans: that is how the questions of a request share its state. Neighbouring runs whose lists begin with the same spans are
// attended together, so the shared part costs little for each of them.
struct AttentionRun {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  int32_t first_span = 0;  // in PassPlan::spans
  int32_t span_count = 0;
};

// How the rows of one pass relate. Host memory of the caller, valid during the calls of that pass.
struct PassPlan {
  std::span<const int32_t> positions;  // [rows] position of each batch row in its sequence
  std::span<const int32_t> kv_rows;    // [rows] where each batch row's key and value are stored
  std::span<const AttentionRun> runs;  // cover all rows that are needed, in order
  std::span<const KvSpan> spans;
  int32_t rows() const { return static_cast<int32_t>(positions.size()); }
};

// All that differs between passes of one size: host memory of the caller, valid until RunPass returns.
struct PassInputs {
  std::span<const TokenId> tokens;       // [rows]
  PassPlan plan;                         // of all rows
  std::span<const int32_t> read_rows;    // [reads] rows of the pass
  PassPlan read_plan;                    // of the reads; no kv_rows
  std::span<const int32_t> label_reads;  // [labels] the read at which each label's logit is wanted
  std::span<const TokenId> label_ids;    // [labels]
};

// What a pass gives: host memory of the caller that its read-outs fill (LabelLogits, Download). There when RunPass returns.
struct PassResults {
  std::span<float> label_logits;  // [labels]
  std::span<float> states;        // [reads, cols]
};

// Passes that a backend keeps ready to be run again with other inputs. Of one model: what RunPass runs with it is always the
// same sequence of operations on the same objects.
class RecordedPasses {
 public:
  virtual ~RecordedPasses() = default;
};

// Rows [first, first + count) of a Tensor. Row-wise operations take one, so that a long batch goes through the wide middle of
// a feed-forward part in slices and its buffers stay small; the Operand of a slice always starts at its row 0.
struct RowRange {
  int32_t first = 0;
  int32_t count = 0;
};

struct HeadSummary {
  float log_sum_exp = 0;  // over the whole vocabulary
  TokenId argmax = 0;     // first maximum
};

// What a backend's choices (Backend::ExportChoices) are good for, beside the model.
struct ChoiceOrigin {
  // Device and precision, "NVIDIA H200, bfloat16"; empty: this backend makes no choices.
  std::string subject;
  // What else they depend on, and its value here: ("CUDA driver", "13.0").
  std::vector<std::pair<std::string, std::string>> versions;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string Describe()
      const = 0;  // one line for the log: name, instruction set, types, threads

  // --- Loading. `reader` gives float32 rows; packing happens once, here. -----------------------------------------------
  // What the model's weights are like; before the first of them. A backend that knows no difference needs none.
  virtual void SetWeightGrain(WeightGrain grain) { static_cast<void>(grain); }
  virtual std::unique_ptr<Weight> LoadWeight(int64_t out_cols, int64_t in_cols,
                                             const RowReader& reader) = 0;
  virtual std::unique_ptr<Vector> LoadVector(std::span<const float> values) = 0;
  virtual std::unique_ptr<Table> LoadTable(int64_t rows, int64_t cols, const RowReader& reader) = 0;
  // cos, sin: [positions, head_dim / 2]; element i turns the pair (i, i + head_dim / 2).
  virtual std::unique_ptr<RopeTable> LoadRope(int32_t head_dim, std::span<const float> cos,
                                              std::span<const float> sin) = 0;

  // --- Buffers, all made before the first pass. ----------------------------------------------------------------------
  virtual std::unique_ptr<Tensor> NewTensor(int64_t max_rows, int64_t cols) = 0;
  virtual std::unique_ptr<Operand> NewOperand(int64_t max_rows, int64_t cols) = 0;
  virtual std::unique_ptr<KvStore> NewKvStore(int64_t rows, const AttentionShape& shape) = 0;
  // Memory of one row of such a store, in bytes.
  virtual int64_t KvRowBytes(const AttentionShape& shape) const = 0;

  // Memory for stores of this shape that is left beside what was loaded and made so far and what attending to them takes, in
  // bytes; 0 where the backend has no memory of its own.
  virtual int64_t KvMemoryLeft(const AttentionShape& shape) const {
    static_cast<void>(shape);
    return 0;
  }
  // kOutOfMemory, with what is needed and what is there, once something that was loaded or made did not fit into the backend's
  // memory. What is loaded or made from then on holds nothing, is not read and may not be used: to be asked when all is there.
  virtual Status MemoryStatus() const { return {}; }

  // --- A pass as a whole. ---------------------------------------------------------------------------------------------
  // How many rows, reads, or labels of so many reads, a pass that needs `count` is to have: at least that many. A backend that
  // keeps passes ready for some sizes asks for the next of those. A row that nobody needs has kNoToken, position 0 and kv_row
  // kNoKvRow and is in no run; a read that nobody needs reads row 0, has position 0 and is in no run; a label that nobody needs is
  // kNoToken at read 0.
  virtual int32_t PassRows(int32_t count) const { return count; }
  virtual int32_t PassReads(int32_t count) const { return count; }
  virtual int32_t PassLabels(int32_t count, int32_t reads) const {
    static_cast<void>(reads);
    return count;
  }
  // Null where nothing is kept. `everyone`: asked once for each pass that was to be recorded, with whether it was; tells whether
  // all ranks have it. If not, nobody keeps it, because what one rank repeats as a whole and another one calls operation by
  // operation need not fit together.
  virtual std::unique_ptr<RecordedPasses> NewRecordedPasses(std::function<bool(bool)> everyone) {
    static_cast<void>(everyone);
    return nullptr;
  }
  // Runs `operations`: calls of this backend that use the inputs and fill the results, each once and as a whole, and use nothing
  // else that lies in host memory. Whether they are called, or are repeated as they were called for an earlier pass of as many
  // rows, reads and labels, is the backend's affair. Results are waited for once, at the end; without any, nothing is.
  // `recorded`: of NewRecordedPasses.
  virtual void RunPass(const PassInputs& inputs, const PassResults& results,
                       RecordedPasses* recorded, const std::function<void()>& operations) {
    static_cast<void>(inputs), static_cast<void>(results), static_cast<void>(recorded);
    operations();
  }

  // --- Choices: which algorithm multiplies which shapes, where a library has several. ----------------------------------
  // A later start, or the other ranks of a group, may take them over.
  virtual ChoiceOrigin OriginOfChoices() const { return {}; }
  // All so far, as bytes; nothing where none are made.
  virtual std::vector<std::byte> ExportChoices() const { return {}; }
  // In place of own ones; passes that were recorded with those are recorded anew. Not ok, and nothing taken: the bytes are damaged,
  // or of another origin. Choices for shapes that do not come here are of no consequence.
  virtual Status ImportChoices(std::span<const std::byte> bytes) {
    static_cast<void>(bytes);
    return {};
  }
  // While on, products of shapes that have no tried choice yet try several and keep the fastest, and no pass is recorded.
  virtual void SetTuning(bool on) { static_cast<void>(on); }
  // For the log: "64 products, 60 of them tuned".
  virtual std::string DescribeChoices() const { return ""; }

  // The queue that operations go to (a CUDA stream), for a collective that works in the same one; null where an operation is
  // done when it returns.
  virtual void* Queue() const { return nullptr; }

  // --- One pass. `rows` is the number of batch rows in use. ----------------------------------------------------------
  // out[r] = table[ids[r]]; zeros for kNoToken
  virtual void Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) = 0;
  // out[i] = x[r] / sqrt(mean(x[r]²) + eps) * weight, r = rows.first + i
  virtual void RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
                       Operand& out) = 0;
  // out[r] = x[r] · Wᵀ (+ bias)
  virtual void MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
                      Tensor& out) = 0;
  // sum[rows.first + i] += x[i] · Wᵀ
  virtual void MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) = 0;
  // In qkv [rows, q | k | v]: RMSNorm of each q and k head where norms are given (nullptr: none), then rotation by position.
  virtual void NormRope(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                        const Vector* q_norm, const Vector* k_norm, float eps,
                        const PassPlan& plan) = 0;
  // Stores k and v of every row of qkv at plan.kv_rows, but for kNoKvRow; needs nothing else of the plan.
  virtual void StoreKv(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                       KvStore& store) = 0;
  // NormRope, then StoreKv of what that gives: for backends that do both at once.
  virtual void NormRopeStoreKv(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                               const Vector* q_norm, const Vector* k_norm, float eps,
                               const PassPlan& plan, KvStore& store) {
    NormRope(qkv, shape, rope, q_norm, k_norm, eps, plan);
    StoreKv(qkv, shape, plan, store);
  }
  // For every row r of the plan's runs (rows in none are left as they are): out[r] = softmax(scale · q[r]·k over the visible positions) · v, heads side by side:
  // [rows, q_cols]. Keys and values come from the store alone, so the plan may be one of fewer rows than were stored.
  virtual void Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
                      const KvStore& store, Operand& out) = 0;
  // gate_up [rows, gate | up]: out[r] = silu(gate) * up
  virtual void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) = 0;
  // out[i] = x[rows[i]]; `out` is another tensor than `x`
  virtual void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) = 0;
  // Rows for reading out stay in full precision: out[r] = RmsNorm(x[r]) as a Tensor
  virtual void FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                         Tensor& out) = 0;

  // --- Read-out, into host memory: there when the call returns, or where it is of the results of a pass, when that is over. ---
  // out[i] = x[row_of[i]] · head[ids[i]]; 0 for kNoToken
  virtual void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                           std::span<const TokenId> ids, std::span<float> out) = 0;
  // Summaries of x[0 … rows) over the whole head.
  virtual void SummarizeHead(const Tensor& x, const Table& head, int32_t rows,
                             std::span<HeadSummary> out) = 0;
  // --- Between ranks. -------------------------------------------------------------------------------------------------
  // x[rows] = 0
  virtual void Clear(Tensor& x, RowRange rows) = 0;
  // Where x[rows] lies, for a collective that sums it in place over the ranks: all floats from the first row's to the last
  // one's, and what may lie between two rows. In the backend's own memory, which may be a device's (see Queue); written before
  // the next operation.
  virtual std::span<float> Memory(Tensor& x, RowRange rows) = 0;

  // Copies host memory [rows, cols] to out[0 … rows).
  virtual void Upload(std::span<const float> values, int32_t rows, Tensor& out) = 0;
  // Copies x[0 … rows) to host memory [rows, cols], likewise.
  virtual void Download(const Tensor& x, int32_t rows, std::span<float> out) = 0;
};

struct BackendOptions {
  std::string name = "auto";  // auto, or one of BackendNames(); MakeCudaBackend ignores it
  // Precision of weights and of matrix products: int8, bfloat16, float32, or auto: int8 where the instruction set multiplies
  // small integers faster than floats (AVX2 and better), else float32.
  std::string dtype = "auto";
  int threads = 0;  // 0: as many as the affinity mask and the cgroup allow
  // Vector instruction set of the CPU backend, for tests and for finding faults: auto, portable, or a Highway target such as
  // avx2 that this host has. Results of different sets differ within rounding.
  std::string isa = "auto";
  // For tests: whatever the model's weights are like (SetWeightGrain). They count as coarse where nothing tells.
  std::optional<WeightGrain> weight_grain = {};

  // --- Of the CUDA backend alone (kernels/cuda/cuda_backend.h). ---
  int device = 0;                   // ordinal among the devices that this process sees
  double memory_utilization = 0.9;  // share of the device's memory to use at most, 0 … 1
  bool graphs = true;  // passes of usual sizes are recorded once and then launched as a whole
  bool batch_invariant = false;  // a row's bits never depend on the other rows of the batch: slower
};

// kInvalidArgument names an unknown name, type or instruction set and lists the known ones. One name more than those listed is
// taken: cpu-onednn, a variant of cpu for tests that multiplies with oneDNN in any case, or kUnsupported where oneDNN has nothing
// for the type on this host.
Result<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);
// Names that MakeBackend takes on this host, without "auto"; the conformance suite runs over them.
std::vector<std::string> BackendNames();

}  // namespace sysone
