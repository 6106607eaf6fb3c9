// Passes calls on to the CUDA backend over the emulated device and writes down what each operation has to move and to compute at
// least, and what it really launches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/forwarding_backend.h"

namespace sysone {

struct CountedLaunch {
  const void* kernel;        // null: a product of cuBLASLt
  unsigned blocks, threads;  // threads of a block
  size_t shared_bytes;
};

// One call. Bytes are those of inputs, weights and results, each once.
struct CountedOperation {
  std::string name;  // "MatMul 4096 x 1024": output columns and depth
  bool in_pass;      // within RunPass, which is one launch once it is recorded
  double bytes = 0;  // all of them
  double memory_bytes =
      0;  // of these, what no cache can hold from the operation before: weights, table rows, stored keys and values
  double flops = 0;
  double host_bytes = 0;  // over the bus
  int copies = 0;
  std::vector<CountedLaunch> launches;
};

class CountedBackend final : public ForwardingBackend {
 public:
  // `cuda`: of MakeCudaBackend. Observes the emulated device's launches for as long as it lives; one at a time.
  explicit CountedBackend(Backend& cuda);
  ~CountedBackend() override;

  // Since the last call.
  std::vector<CountedOperation> Take();

  void RunPass(const PassInputs& inputs, const PassResults& results, RecordedPasses* recorded,
               const std::function<void()>& operations) override;
  void Embed(const Table& table, std::span<const TokenId> ids, Tensor& out) override;
  void RmsNorm(const Tensor& x, const Vector& weight, float eps, RowRange rows,
               Operand& out) override;
  void MatMul(const Operand& x, const Weight& weight, const Vector* bias, int32_t rows,
              Tensor& out) override;
  void MatMulAdd(const Operand& x, const Weight& weight, RowRange rows, Tensor& sum) override;
  void NormRopeStoreKv(Tensor& qkv, const AttentionShape& shape, const RopeTable& rope,
                       const Vector* q_norm, const Vector* k_norm, float eps, const PassPlan& plan,
                       KvStore& store) override;
  void Attend(const Tensor& qkv, const AttentionShape& shape, const PassPlan& plan,
              const KvStore& store, Operand& out) override;
  void GatedSilu(const Tensor& gate_up, int32_t rows, Operand& out) override;
  void SelectRows(const Tensor& x, std::span<const int32_t> rows, Tensor& out) override;
  void FinalNorm(const Tensor& x, const Vector& weight, float eps, int32_t rows,
                 Tensor& out) override;
  void LabelLogits(const Tensor& x, const Table& head, std::span<const int32_t> row_of,
                   std::span<const TokenId> ids, std::span<float> out) override;
  void Upload(std::span<const float> values, int32_t rows, Tensor& out) override;
  void Download(const Tensor& x, int32_t rows, std::span<float> out) override;

 private:
  void Around(const char* operation, const std::function<void()>& call) override;
  // The work of the call that is passed on next.
  void Needs(std::string detail, double memory_bytes, double passing_bytes, double flops = 0,
             double host_bytes = 0);

  bool in_pass_ = false;
  CountedOperation next_;
  std::vector<CountedOperation> operations_;
};

}  // namespace sysone
