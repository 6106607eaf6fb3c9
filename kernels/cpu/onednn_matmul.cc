// Matrix products by oneDNN, for hosts whose bfloat16 instructions our own kernels do not use. One template of code serves both
// types, so that hosts without those instructions test it with float32.
//
// oneDNN picks a kernel, and with it perhaps an order of summation, by the number of rows. So only a few fixed heights are
// ever multiplied, the rest of the last tile is padding, and heights are used together only after a check at load that
// they give the same bits. oneDNN's own threads (OpenMP) are not used: each thread of our pool multiplies a slice of columns.
// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/cpu/matmul_engine.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace sysone {
namespace {

using dnnl::memory;

// A row alone costs as much as kSmallTile of them; a full pass has few padded rows in kLargeTile.
constexpr int64_t kSmallTile = 16, kLargeTile = 64;
// Columns a slice is a multiple of: whole register tiles of every instruction set.
constexpr int64_t kSliceUnit = 64;

// oneDNN in this thread, alone.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  const int before_;
};

template <class T>
T Rounded(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return ToBfloat16(value);
}

struct Slice {
  int64_t first_col = 0;
  int64_t cols = 0;
  Buffer buffer;
  memory packed;
};

struct OnednnWeight : CpuWeight {
  std::vector<Slice> slices;
  bool large_tiles = false;  // give the same bits as small ones
};

// T: float or uint16_t for bfloat16.
template <class T>
class OnednnMatMul : public MatMulEngine {
 public:
  explicit OnednnMatMul(ThreadPool& pool) : pool_(pool), engine_(dnnl::engine::kind::cpu, 0) {
    for (int t = 0; t < pool.threads(); ++t) threads_.push_back({dnnl::stream(engine_), {}, {}});
  }

  std::string Describe() const override { return "matrix products by oneDNN"; }
  Encoding operand_encoding() const override {
    return kIsFloat ? Encoding::kFloat32 : Encoding::kBfloat16;
  }

  // Name of the kernel that oneDNN would use. Throws if there is none.
  std::string Implementation() {
    return Describe(kLargeTile, kSliceUnit, kSliceUnit).impl_info_str();
  }

  std::unique_ptr<Weight> Load(int64_t out_cols, int64_t in_cols,
                               const RowReader& reader) override {
    auto weight = std::make_unique<OnednnWeight>();
    weight->out_cols = out_cols;
    weight->in_cols = in_cols;
    const int64_t cols = DivideUp(DivideUp(out_cols, 4 * pool_.threads()), kSliceUnit) * kSliceUnit;
    weight->slices.resize(static_cast<size_t>(DivideUp(out_cols, cols)));
    pool_.ParallelFor(std::ssize(weight->slices), [&](int64_t i, int thread) {
      Slice& slice = weight->slices[static_cast<size_t>(i)];
      slice.first_col = i * cols;
      slice.cols = std::min(cols, out_cols - slice.first_col);
      Pack(reader, in_cols, slice, threads_[static_cast<size_t>(thread)].stream);
    });
    // Room for one tile; the primitives, too, are made now.
    for (PerThread& thread : threads_) {
      if (thread.x.cols < in_cols) thread.x = Rows<T>(kLargeTile, in_cols);
      if (thread.sums.cols < cols) thread.sums = Rows<float>(kLargeTile, cols);
    }
    weight->large_tiles = SameBitsInBothTiles(*weight);
    return weight;
  }

  void Multiply(const MatMulCall& call) override {
    const auto& weight = static_cast<const OnednnWeight&>(*call.weight);
    pool_.ParallelFor(call.rows == 0 ? 0 : std::ssize(weight.slices), [&](int64_t i, int thread) {
      const Slice& slice = weight.slices[static_cast<size_t>(i)];
      PerThread& own = threads_[static_cast<size_t>(thread)];
      for (int64_t row = 0; row < call.rows;) {
        const int64_t tile =
            weight.large_tiles && call.rows - row > 2 * kSmallTile ? kLargeTile : kSmallTile;
        const int64_t rows = std::min(tile, call.rows - row);
        T* x = Encoded(*call.x).Row(row);
        if (rows < tile) {
          const Rows<T>& from = Encoded(*call.x);
          for (int64_t r = 0; r < rows; ++r)
            std::copy_n(from.Row(row + r), weight.in_cols,
                        own.x.buffer.template As<T>() + r * from.stride);
          x = own.x.buffer.template As<T>();
        }
        MultiplyTile(tile, weight.in_cols, slice, x, own);
        Finish(call, slice, row, rows, own.sums.buffer.template As<float>());
        row += rows;
      }
    });
  }

 private:
  static constexpr bool kIsFloat = std::is_same_v<T, float>;
  static constexpr memory::data_type kType =
      kIsFloat ? memory::data_type::f32 : memory::data_type::bf16;

  struct PerThread {
    dnnl::stream stream;
    Rows<T> x;         // a tile that is padded
    Rows<float> sums;  // results of a tile, [tile][slice.cols]
  };
  struct Tile {
    dnnl::matmul primitive;
    memory::desc x, packed, sums;
  };

  static const Rows<T>& Encoded(const CpuOperand& operand) {
    if constexpr (kIsFloat)
      return operand.f32;
    else
      return operand.bf16;
  }

  dnnl::matmul::primitive_desc Describe(int64_t tile, int64_t cols, int64_t in_cols) {
    const OneThread one_thread;
    const memory::desc x({tile, in_cols}, kType, memory::dims{RowStride<T>(in_cols), 1});
    const memory::desc w({in_cols, cols}, kType, memory::format_tag::any);
    const memory::desc sums({tile, cols}, memory::data_type::f32, memory::format_tag::ab);
    return {dnnl::matmul::desc(x, w, sums), engine_};
  }

  // Made on first use, during Load; read-only afterwards.
  const Tile& TileFor(int64_t rows, int64_t cols, int64_t in_cols) {
    const std::scoped_lock lock(mutex_);
    const auto key = std::tuple(rows, cols, in_cols);
    if (const auto found = tiles_.find(key); found != tiles_.end()) return found->second;
    const auto description = Describe(rows, cols, in_cols);
    return tiles_
        .emplace(key, Tile{dnnl::matmul(description), description.src_desc(),
                           description.weights_desc(), description.dst_desc()})
        .first->second;
  }

  void Pack(const RowReader& reader, int64_t in_cols, Slice& slice, dnnl::stream& stream) {
    const OneThread one_thread;
    const auto count = static_cast<size_t>(slice.cols * in_cols);
    std::vector<float> rows(count);
    reader(slice.first_col, slice.cols, rows.data());
    std::vector<T> encoded(count);
    std::ranges::transform(rows, encoded.begin(), Rounded<T>);
    const memory::desc plain({in_cols, slice.cols}, kType, memory::format_tag::ba);
    // Both heights have to want the same packing; a second one would be a second copy of the weights.
    const memory::desc packed = TileFor(kSmallTile, slice.cols, in_cols).packed;
    slice.buffer = Buffer(packed.get_size());
    slice.packed = memory(packed, engine_, slice.buffer.template As<void>());
    memory from(plain, engine_, encoded.data());
    dnnl::reorder(from, slice.packed).execute(stream, from, slice.packed);
    stream.wait();
  }

  void MultiplyTile(int64_t rows, int64_t in_cols, const Slice& slice, T* x, PerThread& own) {
    const OneThread one_thread;
    const Tile& tile = TileFor(rows, slice.cols, in_cols);
    tile.primitive.execute(
        own.stream,
        {{DNNL_ARG_SRC, memory(tile.x, engine_, x)},
         {DNNL_ARG_WEIGHTS, slice.packed},
         {DNNL_ARG_DST, memory(tile.sums, engine_, own.sums.buffer.template As<void>())}});
    own.stream.wait();
  }

  void Finish(const MatMulCall& call, const Slice& slice, int64_t first_row, int64_t rows,
              const float* sums) const {
    const float* bias = call.bias ? call.bias + slice.first_col : nullptr;
    for (int64_t r = 0; r < rows; ++r, sums += slice.cols) {
      float* out = call.out + (first_row + r) * call.out_stride + slice.first_col;
      for (int64_t c = 0; c < slice.cols; ++c) {
        const float value = bias ? sums[c] + bias[c] : sums[c];
        out[c] = call.add ? out[c] + value : value;
      }
    }
  }

  // Whether every row of a large tile has the bits that it has in a small one, in each width that the weight has.
  bool SameBitsInBothTiles(const OnednnWeight& weight) {
    PerThread& own = threads_[0];
    const int64_t stride = RowStride<T>(weight.in_cols);
    T* const x = own.x.buffer.template As<T>();
    uint32_t state = 1;  // any values that are not round do
    for (int64_t i = 0; i < kLargeTile * stride; ++i) {
      state = state * 1664525u + 1013904223u;
      x[i] = Rounded<T>(static_cast<float>(state >> 8) * 0x1p-24f - 0.5f);
    }
    for (const Slice* slice : {&weight.slices.front(), &weight.slices.back()}) {
      if (TileFor(kLargeTile, slice->cols, weight.in_cols).packed != slice->packed.get_desc())
        return false;
      float* const sums = own.sums.buffer.template As<float>();
      MultiplyTile(kLargeTile, weight.in_cols, *slice, x, own);
      const std::vector<float> large(sums, sums + kLargeTile * slice->cols);
      for (int64_t row = 0; row < kLargeTile; row += kSmallTile) {
        MultiplyTile(kSmallTile, weight.in_cols, *slice, x + row * stride, own);
        if (std::memcmp(sums, large.data() + row * slice->cols,
                        static_cast<size_t>(kSmallTile * slice->cols) * sizeof(float)) != 0)
          return false;
      }
    }
    return true;
  }

  ThreadPool& pool_;
  dnnl::engine engine_;
  std::vector<PerThread> threads_;
  std::mutex mutex_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Tile> tiles_;
};

template <class T>
std::unique_ptr<MatMulEngine> MakeIfFast(ThreadPool& pool) {
  try {
    auto engine = std::make_unique<OnednnMatMul<T>>(pool);
    if (engine->Implementation().find("ref") != std::string::npos) return nullptr;
    return engine;
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace

std::unique_ptr<MatMulEngine> MakeOnednnMatMul(Dtype weights, ThreadPool& pool) {
  switch (weights) {
    case Dtype::kFloat32:
      return MakeIfFast<float>(pool);
    case Dtype::kBfloat16:
      return MakeIfFast<uint16_t>(pool);
    case Dtype::kInt8:
      break;  // our own kernels do it
  }
  return nullptr;
}

bool OnednnHasBfloat16Instructions() {
  const auto isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

}  // namespace sysone
