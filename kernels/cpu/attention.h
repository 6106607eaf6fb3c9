// Attention of the CPU backend: where keys and values lie, and how the work is split among threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_objects.h"
#include "kernels/cpu/kernel_tables.h"
#include "kernels/cpu/thread_pool.h"

namespace sysone {

// Keys and values by head, because one piece of work looks at one head: the rows of a head follow
// each other.
struct CpuKvStore : KvStore {
  CpuKvStore(int64_t row_count, const AttentionShape& shape);
  static int64_t RowBytes(const AttentionShape& shape);
  int64_t rows = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int64_t slices = 0;  // of kValueCols columns
  Rows<float> keys;    // [kv_heads * rows, head_dim]
  int64_t value_stride = 0;
  Buffer values;  // [kv_heads, slices, rows, kValueCols]

  float* Value(int64_t kv_head, int64_t row) const {
    return values.As<float>() + kv_head * slices * value_stride + row * kValueCols;
  }
};

// Used by the thread that calls the backend.
class CpuAttention {
 public:
  // The pool must outlive it. `targets` as from IsaTargets.
  CpuAttention(int64_t targets, ThreadPool& pool);

  // As in Backend; results as float32 rows of q_cols.
  void StoreKv(const Rows<float>& qkv, const AttentionShape& shape, const PassPlan& plan,
               CpuKvStore& store);
  void Attend(const Rows<float>& qkv, const AttentionShape& shape, const PassPlan& plan,
              const CpuKvStore& store, const Rows<float>& out);

 private:
  const AttentionKernels& kernels_;
  ThreadPool& pool_;
  std::vector<Buffer> scratch_;  // one a thread
  Tiles tiles_;                  // of the current call; kept for its memory
};

}  // namespace sysone
