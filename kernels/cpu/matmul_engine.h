// How the CPU backend multiplies: its own panels and register tiles everywhere, or oneDNN where
// that is faster.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kernels/cpu/cpu_objects.h"
#include "kernels/cpu/thread_pool.h"

namespace sysone {

struct MatMulCall {
  const CpuOperand* x = nullptr;
  const Weight* weight = nullptr;
  const float* bias = nullptr;  // [out_cols] or null
  int64_t rows = 0;
  float* out = nullptr;  // [rows, out_cols]
  int64_t out_stride = 0;
  bool add = false;  // out += instead of out =
};

// Keeps the promise of backend.h: a row of the result depends on that row of x alone, bit for bit.
class MatMulEngine {
 public:
  virtual ~MatMulEngine() = default;
  virtual std::string Describe() const = 0;
  // Before the first weight: see backend.h.
  virtual void set_weight_grain(WeightGrain) {}
  // How operands have to be encoded.
  virtual Encoding operand_encoding() const = 0;
  virtual std::unique_ptr<Weight> Load(int64_t out_cols, int64_t in_cols,
                                       const RowReader& reader) = 0;
  virtual void Multiply(const MatMulCall& call) = 0;
};

// Own kernels. `targets` as from IsaTargets. The pool must outlive the engine.
std::unique_ptr<MatMulEngine> MakePanelMatMul(Dtype weights, int64_t targets, ThreadPool& pool);
// Own kernels in int8, likewise.
std::unique_ptr<MatMulEngine> MakeInt8MatMul(int64_t targets, ThreadPool& pool);
// oneDNN, or nullptr if it has nothing but reference code for this type on this host.
std::unique_ptr<MatMulEngine> MakeOnednnMatMul(Dtype weights, ThreadPool& pool);
// Whether oneDNN multiplies bfloat16 in hardware here, twice as fast as float32.
bool OnednnHasBfloat16Instructions();

}  // namespace sysone
