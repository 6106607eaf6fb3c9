// SPDX-License-Identifier: Apache-2.0
#include "router/preflight.h"

#include "model/model_files.h"
#include "router/machine.h"

namespace sysone {
namespace {

// Beside weights, keys and values: code, tokenizer, Python for the templates, activations of small batches. Measured sizes vary with
// the model; this is the part below which no process gets.
constexpr int64_t kProcessBytes = int64_t{64} << 20;

}  // namespace

Result<ModelFacts> InspectModel(const std::string& model_path, const std::string& dtype) {
  SYSONE_ASSIGN_OR_RETURN(const ModelWeights weights, OpenModelWeights(model_path));
  const auto is_table = [&](const TensorInfo& tensor) {
    return tensor.name == weights.config.names.embedding ||
           tensor.name == weights.config.names.head;
  };
  int64_t bytes = 0;
  for (const TensorInfo& tensor : weights.tensors.tensors()) {
    const int64_t elements = tensor.rows() * tensor.cols();
    const bool int8 = (dtype == "int8" || dtype == "auto") && !is_table(tensor);
    const bool four_bits = tensor.type == TensorType::kQ4_0 || tensor.type == TensorType::kQ4_1 ||
                           tensor.type == TensorType::kQ4_K;
    // Half a byte or a byte, and two floats for 32 of them (kernels/int8.h).
    bytes += int8 ? elements / (four_bits ? 2 : 1) + elements / 4
                  : elements * (dtype == "float32" ? 4 : 2);
  }
  return ModelFacts{bytes, weights.fingerprint};
}

Status CheckMemory(int64_t weight_bytes, const ServeOptions& options, int local_ranks,
                   int64_t available_bytes) {
  const int64_t processes = int64_t{LocalGroups(options)} * local_ranks + options.api_server_count;
  const int64_t kv_bytes =
      options.kv_cache_memory != 0 ? options.kv_cache_memory : kKvCacheMemoryDefault;
  // Weights, keys and values are shared out among a group's ranks.
  const int64_t needed = (weight_bytes + kv_bytes) * LocalGroups(options) * local_ranks /
                             options.tensor_parallel_size +
                         kProcessBytes * processes;
  if (available_bytes == 0 || needed <= available_bytes) return {};
  return Error(
      Code::kOutOfMemory,
      "not enough memory: %s are needed (weights %s and --kv-cache-memory %s for each of %d "
      "groups, and %d processes), %s are available; "
      "take a smaller model or less --kv-cache-memory%s",
      BytesText(needed).c_str(), BytesText(weight_bytes).c_str(), BytesText(kv_bytes).c_str(),
      LocalGroups(options), static_cast<int>(processes), BytesText(available_bytes).c_str(),
      LocalGroups(options) > 1 ? " or fewer groups (--data-parallel-size)" : "");
}

}  // namespace sysone
