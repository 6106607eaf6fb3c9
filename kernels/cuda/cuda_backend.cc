// Making and loading, and passes that run as a whole.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/log.h"
#include "kernels/cpu/cpu_limits.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda_backend_impl.h"
#include "kernels/cuda/launch.h"

namespace sysone {
namespace {

// Rows of the passes that are kept ready. Between two of them, rows that nobody needs cost at most half as much work again, which is
// less than launching the operations one by one would.
constexpr std::array<int32_t, 17> kPassRows = {8,   16,  24,  32,  48,  64,  80,  96, 128,
                                               160, 192, 224, 256, 320, 384, 448, 512};
// A question has up to that many labels, usually; a label that nobody needs costs a block of threads that ends at once.
constexpr int32_t kLabelsOfARead = 16;
// Threads that read and encode weights; more of them wait for the copies.
constexpr int kMostLoadingThreads = 16;
// For what CUDA itself takes later: recorded passes, code that is loaded at its first use.
constexpr int64_t kReserveBytes = int64_t{384} << 20;
// The device gives memory in steps of 2 MiB; a store of keys and one of values for each layer, some dozens, lose half of one.
constexpr int64_t kStoreSlackBytes = int64_t{128} << 20;
// What a backend takes before it has loaded anything, the workspace of products included, with some air.
constexpr int64_t kLeastFreeBytes = int64_t{512} << 20;

const char* EncodingName(Encoding encoding) {
  switch (encoding) {
    case Encoding::kFloat32:
      return "float32";
    case Encoding::kBfloat16:
      return "bfloat16";
    case Encoding::kInt8:
      return "int8";
    case Encoding::kFp8:
      return "fp8";
  }
  return "";
}

Result<Encoding> ParseEncoding(const std::string& dtype) {
  if (dtype == "auto") return Encoding::kBfloat16;
  for (const Encoding encoding :
       {Encoding::kFloat32, Encoding::kBfloat16, Encoding::kInt8, Encoding::kFp8})
    if (dtype == EncodingName(encoding)) return encoding;
  return Error(Code::kInvalidArgument,
               "unknown dtype '%s'; known on GPUs: auto, bfloat16, float32, int8, fp8",
               dtype.c_str());
}

}  // namespace

CudaBackend::CudaBackend(const BackendOptions& options, Encoding encoding, const CudaDevice& device)
    : options_(options),
      encoding_(encoding),
      device_(device),
      budget_(options.memory_utilization, device.at_start, kReserveBytes),
      staging_(stream_),
      inputs_(stream_),
      results_(stream_),
      loader_(stream_, std::min(options.threads > 0 ? options.threads : AllowedThreads(),
                                kMostLoadingThreads)) {
  PrepareAttention();
}

Status CudaBackend::MakeMatMul() {
  const MatMulOptions options{.encoding = encoding_, .batch_invariant = options_.batch_invariant};
  SYSONE_ASSIGN_OR_RETURN(matmul_, CudaMatMul::Make(options, stream_.get()));
  return {};
}

std::string CudaBackend::Describe() const {
  return Format("cuda: %s, weights %s, %s%s%s", sysone::Describe(device_).c_str(),
                EncodingName(encoding_), matmul_->Describe().c_str(),
                options_.graphs ? ", passes recorded" : "",
                options_.batch_invariant ? ", batch-invariant" : "");
}

std::unique_ptr<Weight> CudaBackend::LoadWeight(int64_t out_cols, int64_t in_cols,
                                                const RowReader& reader) {
  auto weight = std::make_unique<CudaWeight>();
  weight->encoding = encoding_;
  weight->out_cols = out_cols;
  weight->padded_out = PaddedDepth(out_cols);
  weight->in_cols = in_cols;
  weight->stride = PaddedDepth(in_cols);
  const int64_t row_bytes = weight->stride * BytesOf(encoding_);
  weight->values = Make<std::byte>(weight->padded_out * row_bytes);
  if (HasScales(encoding_)) weight->scales = Make<float>(weight->padded_out);
  if (!budget_.status().ok()) return weight;
  const int64_t padding = weight->padded_out - out_cols;
  ClearBytes(weight->values.data() + out_cols * row_bytes, padding * row_bytes);
  if (weight->scales.data())
    ClearBytes(weight->scales.data() + out_cols, padding * int64_t{sizeof(float)});
  loader_.Load(reader, {encoding_, out_cols, in_cols, weight->stride, weight->values.data(),
                        weight->scales.data()});
  return weight;
}

std::unique_ptr<Vector> CudaBackend::LoadVector(std::span<const float> values) {
  auto vector = std::make_unique<CudaVector>();
  vector->size = std::ssize(values);
  vector->values = LoadFloats(values);
  return vector;
}

std::unique_ptr<Table> CudaBackend::LoadTable(int64_t rows, int64_t cols, const RowReader& reader) {
  auto table = std::make_unique<CudaTable>();
  table->encoding = TableEncoding();
  table->rows = rows;
  table->cols = cols;
  table->values = Make<std::byte>(rows * cols * BytesOf(table->encoding));
  if (budget_.status().ok())
    loader_.Load(reader, {table->encoding, rows, cols, cols, table->values.data(), nullptr});
  return table;
}

std::unique_ptr<RopeTable> CudaBackend::LoadRope(int32_t head_dim, std::span<const float> cos,
                                                 std::span<const float> sin) {
  SYSONE_CHECK(head_dim % 2 == 0 && cos.size() == sin.size(), "rope tables do not fit");
  auto rope = std::make_unique<CudaRope>();
  rope->head_dim = head_dim;
  rope->positions = std::ssize(cos) / (head_dim / 2);
  rope->cos = LoadFloats(cos);
  rope->sin = LoadFloats(sin);
  return rope;
}

std::unique_ptr<Tensor> CudaBackend::NewTensor(int64_t max_rows, int64_t cols) {
  auto tensor = std::make_unique<CudaTensor>();
  tensor->rows = max_rows;
  tensor->cols = cols;
  tensor->values = Make<float>(max_rows * cols);
  return tensor;
}

std::unique_ptr<Operand> CudaBackend::NewOperand(int64_t max_rows, int64_t cols) {
  auto operand = std::make_unique<CudaOperand>();
  operand->encoding = encoding_;
  operand->rows = max_rows;
  operand->cols = cols;
  operand->stride = PaddedDepth(cols);
  operand->values = Make<std::byte>(max_rows * operand->stride * BytesOf(encoding_));
  ClearBytes(operand->values.data(), operand->values.count());
  if (HasScales(encoding_)) {
    operand->scales = Make<float>(max_rows);
    if (max_rows * cols > unscaled_.count()) {
      unscaled_ = Make<float>(max_rows * cols);
      ++scratch_generation_;
    }
  }
  return operand;
}

std::unique_ptr<KvStore> CudaBackend::NewKvStore(int64_t rows, const AttentionShape& shape) {
  auto store = std::make_unique<CudaKvStore>();
  store->encoding = TableEncoding();
  store->rows = rows;
  store->kv_heads = shape.kv_heads;
  store->head_dim = shape.head_dim;
  const int64_t bytes = rows * KvRowBytes(shape) / 2;
  store->keys = Make<std::byte>(bytes);
  store->values = Make<std::byte>(bytes);
  const int64_t parts = AttentionPartBytes(shape, store->encoding, device_.multiprocessors);
  if (parts > attention_parts_.count()) {
    attention_parts_ = Make<std::byte>(parts);
    ClearBytes(attention_parts_.data(), attention_parts_.count());
    ++scratch_generation_;
  }
  return store;
}

int64_t CudaBackend::KvMemoryLeft(const AttentionShape& shape) const {
  const int64_t parts = AttentionPartBytes(shape, TableEncoding(), device_.multiprocessors);
  const int64_t missing = std::max<int64_t>(parts - attention_parts_.count(), 0);
  return std::max<int64_t>(budget_.Left() - kStoreSlackBytes - missing, 1);
}

DeviceArray<float> CudaBackend::LoadFloats(std::span<const float> values) {
  auto floats = Make<float>(std::ssize(values));
  if (floats.data()) staging_.Put(std::as_bytes(values), floats.data());
  return floats;
}

void CudaBackend::ClearBytes(void* memory, int64_t bytes) {
  if (memory && bytes > 0)
    SYSONE_CUDA(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream_.get()));
}

int32_t CudaBackend::PassRows(int32_t count) const {
  if (count <= 0) return count;
  const auto* const next = std::ranges::lower_bound(kPassRows, count);
  return next != kPassRows.end() ? *next : count;
}

int32_t CudaBackend::PassReads(int32_t count) const {
  return count <= 0 ? count : static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(count)));
}

int32_t CudaBackend::PassLabels(int32_t count, int32_t reads) const {
  if (count <= 0) return count;
  // One size for all usual decisions of as many reads, so that the number of labels asks for no passes of its own.
  int32_t labels = std::max(reads, 1) * kLabelsOfARead;
  while (labels < count) labels *= 4;
  return labels;
}

void CudaBackend::RunPass(const PassInputs& inputs, const PassResults& results,
                          RecordedPasses* recorded, const std::function<void()>& operations) {
  inputs_.Put(inputs);
  results_.Put(results);
  PassSize size = inputs_.size();
  size.state_floats = std::ssize(results.states);
  const uint64_t memory =
      inputs_.generation() + results_.generation() + scratch_generation_ + choices_generation_;
  const bool usual = size.rows > 0 && size.rows <= kPassRows.back() &&
                     size.rows == PassRows(size.rows) && size.reads == PassReads(size.reads) &&
                     size.labels == PassLabels(size.labels, size.reads);
  // While tuning, what is chosen in this pass may still change.
  auto* const kept = usual && !tuning_ ? static_cast<CudaRecordedPasses*>(recorded) : nullptr;
  in_pass_ = true;
  if (kept && kept->Launch(size, memory)) {
    inputs_.MarkSent();
  } else {
    const auto all = [&] {
      inputs_.Send();
      operations();
    };
    all();
    // Only now: the first time, libraries load code and make choices, which may not be recorded.
    if (kept) kept->Record(size, memory, all);
  }
  in_pass_ = false;
  results_.Fetch();
}

ChoiceOrigin CudaBackend::OriginOfChoices() const {
  return {Format("%s, %s%s", device_.name.c_str(), EncodingName(encoding_),
                 options_.batch_invariant ? ", batch-invariant" : ""),
          {{"compute capability", Format("%d.%d", device_.major, device_.minor)},
           {"library of products", matmul_->Describe()},
           {"CUDA driver", DriverVersion(device_)}}};
}

Status CudaBackend::ImportChoices(std::span<const std::byte> bytes) {
  const auto before = matmul_->ExportChoices();
  SYSONE_RETURN_IF_ERROR(matmul_->ImportChoices(bytes).status());
  if (matmul_->ExportChoices() != before) ++choices_generation_;
  return {};
}

void CudaBackend::SetTuning(bool on) {
  tuning_ = on;
  matmul_->SetTuning(on);
}

std::string CudaBackend::DescribeChoices() const {
  const CudaMatMul::Counts counts = matmul_->counts();
  return Format("%lld products, %lld of them tuned", static_cast<long long>(counts.shapes),
                static_cast<long long>(counts.tuned));
}

Result<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options) {
  SYSONE_ASSIGN_OR_RETURN(const Encoding encoding, ParseEncoding(options.dtype));
  if (options.threads < 0)
    return Error(Code::kInvalidArgument, "threads is %d; give 0 or more", options.threads);
  if (!(options.memory_utilization > 0 && options.memory_utilization <= 1))
    return Error(Code::kInvalidArgument, "the share of the device's memory is %g; give 0 … 1",
                 options.memory_utilization);
  SYSONE_ASSIGN_OR_RETURN(const CudaDevice device, TakeCudaDevice(options.device));
  if (device.at_start.free < kLeastFreeBytes)
    return Error(Code::kOutOfMemory,
                 "%lld of the %lld MiB of CUDA device %d are free, not enough to begin with; see "
                 "what else uses it (nvidia-smi)",
                 static_cast<long long>(device.at_start.free >> 20),
                 static_cast<long long>(device.at_start.total >> 20), device.ordinal);
  auto backend = std::make_unique<CudaBackend>(options, encoding, device);
  SYSONE_RETURN_IF_ERROR(backend->MakeMatMul());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace sysone
