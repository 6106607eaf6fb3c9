// The vector kernels as plain function pointers, one table an instruction set. No threads and no
// allocation in here: the backend splits the work, and hands every call its own memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/int8.h"

namespace sysone {

// --- Matrix products
// -----------------------------------------------------------------------------------------------------
// Weights lie in panels: panel p holds output columns [p * panel_cols, (p + 1) * panel_cols), zeros
// past the last one, as [in_cols][panel_cols]. In bfloat16 the two vectors of a panel row are
// interleaved (element 2i is column i, 2i + 1 is column panel_cols / 2 + i), because the halves of
// 32-bit lanes widen without a shuffle.

// Rows that are multiplied at a time, so that their part of the activations stays in the
// second-level cache, and columns.
inline constexpr int64_t kBlockRows = 192;
inline constexpr int64_t kBlockCols = 128;
inline constexpr int64_t kProductScratch = kBlockRows * kBlockCols;  // floats

struct PanelProduct {
  const float* a = nullptr;  // [rows, k]
  int64_t a_stride = 0;
  int64_t rows = 0;
  int64_t k = 0;
  const void* panels = nullptr;  // all panels of the weight
  int64_t first_panel = 0;       // the part to compute: [first_panel, end_panel)
  int64_t end_panel = 0;
  int64_t cols = 0;             // of the whole weight
  const float* bias = nullptr;  // [cols] or null
  float* out = nullptr;         // [rows, cols]
  int64_t out_stride = 0;
  bool add = false;          // out += instead of out =
  float* scratch = nullptr;  // [kProductScratch], 64-byte aligned
};

struct MatMulKernels {
  int64_t panel_cols = 0;  // 8 … 32
  // rows[panel_cols][k] (absent ones zero) to one panel.
  void (*pack_f32)(const float* rows, int64_t k, void* panel) = nullptr;
  void (*pack_bf16)(const float* rows, int64_t k, void* panel) = nullptr;
  void (*multiply_f32)(const PanelProduct& product) = nullptr;
  void (*multiply_bf16)(const PanelProduct& product) = nullptr;
};
const MatMulKernels& GetMatMulKernels(int64_t targets);

// --- Matrix products in int8 (kernels/int8.h)
// ------------------------------------------------------------------------------------------------------
// A panel lies in groups of k, one behind the other as a product reads them from memory:
//   scale[panel_cols] of 32 bits, float low[panel_cols]; uint8_t codes[kInt8Group / 4][panel_cols][4 of k].
// How the codes of a panel lie and are multiplied:
enum class Codes {
  // All are below 16, and two rows share one: the even one's lie in the lower halves of its bytes.
  kHalfBytes,
  kBytes,
  // codes[kInt8Group / 2][panel_cols][2 of k]: bytes, but words of 16 bits when they are multiplied, as activations are then.
  kWords,
};

struct Int8Panel {
  const std::byte* groups = nullptr;  // 64-byte aligned
  Codes codes = Codes::kBytes;
};

// Lanes of 32 bits that neighbouring codes of a group of activations take.
inline constexpr int64_t LanesOfGroup(bool words) { return kInt8Group / (words ? 2 : 4); }

// Groups of a panel that the kernel unpacks at a time, at most; half as many if to words.
inline constexpr int64_t kUnpackedGroups = 24;

struct Int8Product {
  bool words = false;          // all panels are kWords; else none is
  const int32_t* a = nullptr;  // [rows / tile_rows][lanes of all groups][tile_rows]
  // [rows / tile_rows][groups of k][step | step * sum of codes][tile_rows]
  const float* steps = nullptr;
  const Peak* peaks = nullptr;  // of a, unless words: [rows][peak_stride], by k
  int64_t peak_stride = 0;
  const int32_t* peak_counts = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t groups = 0;                 // of k
  const Int8Panel* panels = nullptr;  // all panels of the weight
  const float* units = nullptr;       // of all columns, whole panels, 64-byte aligned
  int64_t first_panel = 0;            // the part to compute: [first_panel, end_panel)
  int64_t end_panel = 0;
  int64_t cols = 0;             // of the whole weight
  const float* bias = nullptr;  // [cols] or null; null if add
  float* out = nullptr;         // [rows, cols]
  int64_t out_stride = 0;
  bool add = false;               // out += instead of out =
  float* sums = nullptr;          // scratch [kProductScratch], 64-byte aligned
  std::byte* unpacked = nullptr;  // scratch [kUnpackedGroups * GroupBytes(kBytes)], likewise
};

struct Int8Kernels {
  int64_t panel_cols = 0;  // 2 … 32
  int64_t tile_rows = 0;   // rows of activations that are interleaved
  int64_t GroupBytes(Codes codes) const {
    return panel_cols * (2 * static_cast<int64_t>(sizeof(float)) +
                         kInt8Group / (codes == Codes::kHalfBytes ? 2 : 1));
  }
  // Codes of x[n] to one row of a tile, zeros up to the end of the last group. row, steps: the row's places in those of its
  // tile. The number of peaks, which are put to peaks[n / kInt8Group * kPeaks] and more, n rounded up.
  int32_t (*encode_bytes)(const float* x, int64_t n, int32_t* row, float* steps,
                          Peak* peaks) = nullptr;
  // Likewise, for products of words.
  void (*encode_words)(const float* x, int64_t n, int32_t* row, float* steps) = nullptr;
  // One group, of codes[panel_cols][stride].
  using Pack = void (*)(const uint8_t* codes, int64_t stride, const Int8Scale* scales,
                        std::byte* group);
  Pack pack_half_bytes = nullptr;
  Pack pack_bytes = nullptr;
  Pack pack_words = nullptr;
  void (*multiply)(const Int8Product& product) = nullptr;
};
const Int8Kernels& GetInt8Kernels(int64_t targets);

// --- Single rows
// ---------------------------------------------------------------------------------------------------------
struct RowKernels {
  // out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out) = nullptr;
  // Each of `heads` heads of 2 * half: RMSNorm, if there is a weight, and rotation in one go.
  void (*norm_rotate)(float* x, int64_t heads, const float* weight, float eps, const float* cos,
                      const float* sin, int64_t half) = nullptr;
  void (*gated_silu)(const float* gate, const float* up, int64_t n, float* out) = nullptr;
  void (*widen)(const uint16_t* bf16, int64_t n, float* out) = nullptr;
  void (*narrow)(const float* x, int64_t n, uint16_t* bf16) = nullptr;
  float (*dot_f32)(const float* x, const float* w, int64_t n) = nullptr;
  float (*dot_bf16)(const float* x, const uint16_t* w, int64_t n) = nullptr;
  float (*sum_exp)(const float* x, int64_t n, float largest) = nullptr;  // Σ exp(x - largest)
};
const RowKernels& GetRowKernels(int64_t targets);

// --- Attention
// -----------------------------------------------------------------------------------------------------------
// Consecutive rows of one run.
struct AttentionSegment {
  int32_t first_row = 0;  // in the batch
  int32_t rows = 0;
  int32_t first_position = 0;
  const KvSpan* spans = nullptr;  // hold position 0 … first_position + rows - 1, in order
};

inline constexpr int64_t kMaxQueries = 64;  // rows * group of one tile
inline constexpr int64_t kMaxHeadDim = 256;

// Columns of a slice of values: a cache line, so that a sum over keys reads one line after the other.
inline constexpr int64_t kValueCols = 16;

// Rows of one or more runs, and the query heads that share one key/value head.
struct AttentionTile {
  const AttentionSegment* segments = nullptr;
  int32_t segment_count = 0;
  int32_t rows = 0;  // of all segments
  int32_t shared_positions =
      0;  // these first ones are the same for all segments, and every row sees them
  const float* q = nullptr;  // row 0 of the batch: [rows, group * head_dim]
  int64_t q_stride = 0;
  int32_t group = 0;
  int32_t head_dim = 0;
  float scale = 0;
  // The head's part of the store. Keys are rows of head_dim; values are slices of kValueCols columns, zeros behind head_dim.
  const float* keys = nullptr;
  int64_t key_stride = 0;
  const float* values = nullptr;
  int64_t value_stride = 0;  // from slice to slice
  float* out = nullptr;      // row 0 of the batch: [rows, group * head_dim]
  int64_t out_stride = 0;
  float* scratch = nullptr;  // [kAttentionScratch], 64-byte aligned
};

// Keys that are looked at together, at multiples of this in the sequence: the order of all sums
// hangs on positions alone.
inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kAttentionScratch =
    kMaxQueries * (2 * kMaxHeadDim + kKeyBlock + 5) + 4 * kKeyBlock;

// The attention kernel of one instruction set.
struct AttentionKernels {
  void (*attend)(const AttentionTile& tile) = nullptr;
};
// The best one among `targets`, a set of Highway's bits.
const AttentionKernels& GetAttentionKernels(int64_t targets);

}  // namespace sysone
