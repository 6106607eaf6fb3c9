// The attention kernels on an emulated device: the tensor-core one and the simple one against sums in double, in several orders of
// threads; and what attention.h promises about a row's independence of all others.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/attention_batch.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/emulation/emulation.h"

namespace sysone {
namespace {

constexpr int32_t kMultiprocessors = 3;  // few, so that a block has several tiles to do

enum class Way { kTensor, kSimple };

template <class T>
DeviceArray<T> OnDevice(const std::vector<T>& values) {
  DeviceArray<T> array(std::ssize(values));
  if (!values.empty())
    SYSONE_CUDA(cudaMemcpy(array.data(), values.data(), array.bytes(), cudaMemcpyHostToDevice));
  return array;
}

DeviceArray<std::byte> Encoded(const std::vector<float>& values, Encoding encoding) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(BytesOf(encoding)));
  for (size_t i = 0; i < values.size() && !HasScales(encoding); ++i) {
    const uint16_t rounded = ToBfloat16(values[i]);
    if (encoding == Encoding::kBfloat16)
      std::memcpy(bytes.data() + 2 * i, &rounded, 2);
    else
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
  }
  return OnDevice(bytes);
}

template <class T>
std::vector<T> OnHost(const DeviceArray<T>& array) {
  std::vector<T> values(static_cast<size_t>(array.count()));
  if (!values.empty())
    SYSONE_CUDA(cudaMemcpy(values.data(), array.data(), array.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

// Without its scale.
float Decoded(const std::vector<std::byte>& bytes, Encoding encoding, size_t i) {
  if (encoding == Encoding::kInt8) return static_cast<float>(static_cast<int8_t>(bytes[i]));
  uint16_t half;
  std::memcpy(&half, bytes.data() + 2 * i, 2);
  if (encoding == Encoding::kBfloat16) return FromBfloat16(half);
  float value;
  std::memcpy(&value, bytes.data() + 4 * i, 4);
  return value;
}

float Rounded(float x) { return FromBfloat16(ToBfloat16(x)); }

// Queries, keys and values of a batch: as in a store, that is with few bits, and so are the queries.
struct Inputs {
  Inputs(const AttentionShape& shape_, AttentionBatch batch_, uint32_t seed = 1)
      : shape(shape_), batch(std::move(batch_)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    qkv.resize(static_cast<size_t>(batch.rows() * shape.qkv_cols()));
    for (float& x : qkv) x = Rounded(normal(random));
  }
  float* Query(int32_t row) { return qkv.data() + row * shape.qkv_cols(); }
  float* Key(int32_t row) { return Query(row) + shape.q_cols(); }
  float* Value(int32_t row) { return Key(row) + shape.kv_cols(); }

  AttentionShape shape;
  AttentionBatch batch;
  std::vector<float> qkv;
};

// Rows of the store that no row of the batch fills are NaN. `plan`: some of the batch's runs, as its rows.
std::vector<float> Attend(Inputs& in, const PassPlan& plan, Way way,
                          Encoding store_encoding = Encoding::kBfloat16,
                          Encoding out_encoding = Encoding::kFloat32, int32_t room = 0,
                          int32_t most_parts = kMostParts,
                          std::vector<std::byte>* parts_left = nullptr) {
  const AttentionShape& shape = in.shape;
  const int32_t rows = in.batch.rows(), store_rows = in.batch.store_rows() + 3;
  std::vector<float> keys(static_cast<size_t>(store_rows * shape.kv_cols()), std::nanf(""));
  std::vector<float> values = keys;
  for (int32_t r = 0; r < rows; ++r) {
    const int32_t to = in.batch.kv_rows[static_cast<size_t>(r)] * shape.kv_cols();
    std::copy_n(in.Key(r), shape.kv_cols(), keys.begin() + to);
    std::copy_n(in.Value(r), shape.kv_cols(), values.begin() + to);
  }
  CudaKvStore store;
  store.encoding = store_encoding;
  store.rows = store_rows;
  store.kv_heads = shape.kv_heads;
  store.head_dim = shape.head_dim;
  store.keys = Encoded(keys, store_encoding);
  store.values = Encoded(values, store_encoding);

  AttentionLimits limits = LimitsOf(plan);
  limits = {limits.rows + room, limits.runs + room, limits.spans + room, limits.chunks || room > 0};
  std::vector<int32_t> table(static_cast<size_t>(AttentionLayout(limits).words), -1);
  AttentionTables(most_parts).Write(plan, limits, table);
  const auto device_table = OnDevice(table);
  const auto qkv = OnDevice(in.qkv);

  CudaOperand out;
  out.encoding = out_encoding;
  out.rows = rows;
  out.cols = shape.q_cols();
  out.stride = PaddedDepth(out.cols);
  const auto size = static_cast<size_t>(rows * out.stride);
  out.values = Encoded(std::vector<float>(size, 7), out_encoding);
  const DeviceArray<float> scratch(HasScales(out_encoding) ? rows * out.cols : 0);
  out.scales = DeviceArray<float>(HasScales(out_encoding) ? rows : 0);
  const DeviceArray<std::byte> parts(AttentionPartBytes(shape, store_encoding, kMultiprocessors));
  if (parts.data()) SYSONE_CUDA(cudaMemset(parts.data(), 0, parts.bytes()));
  const AttentionCall call{.shape = shape,
                           .qkv = qkv.data(),
                           .store = &store,
                           .table = device_table.data(),
                           .limits = limits,
                           .rows = rows,
                           .out = RowsOf(out),
                           .scratch = scratch.data(),
                           .parts = parts.data()};
  PrepareAttention();
  if (way == Way::kTensor)
    LaunchAttention(call, kMultiprocessors, nullptr);
  else
    LaunchSimpleAttention(call, kMultiprocessors, nullptr);
  // The counts, which come first, are ready for the next launch.
  const auto left = OnHost(parts);
  const auto counts = std::min<size_t>(left.size(), kMostParts * sizeof(int32_t));
  EXPECT_EQ(std::ranges::count(std::span(left).first(counts), std::byte{0}),
            std::ssize(std::span(left).first(counts)));
  if (parts_left) *parts_left = left;
  const auto got = OnHost(out.values);
  const auto scales = OnHost(out.scales);
  EXPECT_EQ(emulation::TakeFault(), "");
  std::vector<float> result;
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = HasScales(out_encoding) ? scales[static_cast<size_t>(r)] : 1;
    for (int64_t c = 0; c < out.stride; ++c) {
      const float value =
          scale * Decoded(got, out_encoding, static_cast<size_t>(r * out.stride + c));
      if (c < out.cols)
        result.push_back(value);
      else
        EXPECT_EQ(value, 7) << "padding was written";
    }
  }
  return result;
}

std::vector<float> Attend(Inputs& in, Way way) { return Attend(in, in.batch.Plan(), way); }

std::vector<double> ToDoubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// Of some runs, all by default, in double, with what the kernels may be off by at each element.
struct Wanted {
  std::vector<double> values, tolerances;
};

// A score is a sum of head_dim products, scaled: off by `score`. A weight is off by twice that (its own and the largest one's), by
// 2^-22 of exp2 and by as much for each block of 16 that rescales it; summing n of them adds kLambda √n roundings. Such errors are
// relative to a weight, so they move the result by at most themselves times Σ w |v - result|. On tensor cores weights are rounded
// to bfloat16, each by up to 2^-8 of itself, which adds up like a random walk (see kLambda), but to no more than the worst case.
Wanted WantedOf(Inputs& in, Way way, std::span<const AttentionRun> runs = {}) {
  const AttentionShape& shape = in.shape;
  const int32_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  Wanted wanted;
  wanted.values.assign(static_cast<size_t>(in.batch.rows() * shape.q_cols()), 7);
  wanted.tolerances.assign(wanted.values.size(), 0);
  std::vector<int32_t> batch_row_of(static_cast<size_t>(in.batch.store_rows()));
  for (int32_t r = 0; r < in.batch.rows(); ++r)
    batch_row_of[static_cast<size_t>(in.batch.kv_rows[static_cast<size_t>(r)])] = r;
  for (const AttentionRun& run :
       runs.empty() ? std::span<const AttentionRun>(in.batch.runs) : runs) {
    std::vector<int32_t> seen;  // by position, as rows of the batch
    for (int32_t s = run.first_span; s < run.first_span + run.span_count; ++s)
      for (int32_t i = 0; i < in.batch.spans[static_cast<size_t>(s)].count; ++i)
        seen.push_back(batch_row_of[static_cast<size_t>(
            in.batch.spans[static_cast<size_t>(s)].first_row + i)]);
    for (int32_t r = 0; r < run.rows; ++r) {
      const int32_t n = run.first_position + r + 1;
      for (int32_t h = 0; h < shape.heads; ++h) {
        const float* const q = in.Query(run.first_row + r) + h * dim;
        const int32_t kv_col = h / group * dim;
        std::vector<double> weights;
        double largest = -INFINITY, total = 0, size = 0;
        for (int32_t p = 0; p < n; ++p) {
          const float* const key = in.Key(seen[static_cast<size_t>(p)]) + kv_col;
          double score = 0, q2 = 0, k2 = 0;
          for (int32_t d = 0; d < dim; ++d) {
            score += double{q[d]} * key[d];
            q2 += double{q[d]} * q[d];
            k2 += double{key[d]} * key[d];
          }
          weights.push_back(score * shape.scale);
          largest = std::max(largest, weights.back());
          size = std::max(size, std::sqrt(q2 * k2) * shape.scale);
        }
        for (double& w : weights) total += w = std::exp(w - largest);
        for (int32_t d = 0; d < dim; ++d) {
          double value = 0, apart = 0, squares = 0, most = 0;
          for (int32_t p = 0; p < n; ++p)
            value += weights[static_cast<size_t>(p)] / total *
                     in.Value(seen[static_cast<size_t>(p)])[kv_col + d];
          for (int32_t p = 0; p < n; ++p) {
            const double v = in.Value(seen[static_cast<size_t>(p)])[kv_col + d];
            const double share = weights[static_cast<size_t>(p)] / total * std::abs(v - value);
            apart += share;
            squares += share * share;
            most = std::max(most, std::abs(v));
          }
          const double score = (kLambda * std::sqrt(dim) + 2) * kU * size;
          const double weight = 2 * score + (2 + n / 16.0) * 0x1p-22;
          const double sums = kLambda * std::sqrt(n) * kU * most + 0x1p-22 * most;
          const double rounding = std::min(apart, kLambda * std::sqrt(squares)) * 0x1p-8;
          const auto at = static_cast<size_t>((run.first_row + r) * shape.q_cols() + h * dim + d);
          wanted.values[at] = value;
          wanted.tolerances[at] = weight * apart + sums + (way == Way::kTensor ? rounding : 0);
        }
      }
    }
  }
  return wanted;
}

AttentionShape Shape(int32_t kv_heads, int32_t group, int32_t dim) {
  return {kv_heads * group, kv_heads, dim, 1 / std::sqrt(static_cast<float>(dim))};
}

AttentionBatch OneRun(int32_t rows) {
  AttentionBatch batch;
  batch.AddRun({}, rows);
  return batch;
}

AttentionBatch Branches(int32_t prefix_rows, const std::vector<int32_t>& branches) {
  AttentionBatch batch;
  const auto prefix = batch.AddRun({}, prefix_rows);
  for (const int32_t rows : branches) batch.AddRun(prefix, rows);
  return batch;
}

void Check(const AttentionShape& shape, const AttentionBatch& batch) {
  SCOPED_TRACE(::testing::Message() << shape.heads << " on " << shape.kv_heads << " heads of "
                                    << shape.head_dim << ", " << batch.rows() << " rows");
  Inputs in(shape, batch, static_cast<uint32_t>(shape.qkv_cols() + batch.rows()));
  for (const Way way : {Way::kTensor, Way::kSimple}) {
    SCOPED_TRACE(way == Way::kTensor ? "tensor cores" : "simple");
    const Wanted wanted = WantedOf(in, way);
    EXPECT_TRUE(Within(Attend(in, way), wanted.values, wanted.tolerances));
  }
}

// One order of the emulation's threads after the other.
class CudaAttention : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { emulation::SetThreadOrder(emulation::OrderNamed(GetParam())); }
};

TEST_P(CudaAttention, AgreesOverHeadSizes) {
  for (const int32_t dim : {16, 48, 64, 80, 96, 128, 256}) Check(Shape(1, 2, dim), OneRun(37));
}

TEST_P(CudaAttention, AgreesOverGroups) {
  for (int32_t group = 1; group <= 8; ++group) Check(Shape(2, group, 16), OneRun(18));
}

TEST_P(CudaAttention, AgreesOverLengthsAroundBlocksTilesAndStages) {
  for (const int32_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129})
    Check(Shape(1, 1, 16), OneRun(rows));
}

// Rows behind others that are in the store already.
struct Cached {
  Cached(int32_t cached, const std::vector<int32_t>& branches) {
    const auto prefix = batch.AddRun({}, cached);
    for (const int32_t rows : branches) batch.AddRun(prefix, rows);
  }
  // Of the branches alone.
  PassPlan Plan() const {
    PassPlan plan = batch.Plan();
    plan.runs = plan.runs.subspan(1);
    return plan;
  }
  AttentionBatch batch;
};

void CheckCached(const AttentionShape& shape, const Cached& cached) {
  Inputs in(shape, cached.batch, static_cast<uint32_t>(cached.batch.rows()));
  const PassPlan plan = cached.Plan();
  for (const Way way : {Way::kTensor, Way::kSimple}) {
    SCOPED_TRACE(way == Way::kTensor ? "tensor cores" : "simple");
    const auto first = static_cast<size_t>(plan.runs.front().first_row * shape.q_cols());
    const Wanted wanted = WantedOf(in, way, plan.runs);
    const auto got = Attend(in, plan, way);
    EXPECT_TRUE(Within(std::span(got).subspan(first), std::span(wanted.values).subspan(first),
                       std::span(wanted.tolerances).subspan(first)));
    if (way == Way::kSimple) continue;
    for (const int32_t most_parts : {0, 4})
      EXPECT_TRUE(SameBits(
          Attend(in, plan, way, Encoding::kBfloat16, Encoding::kFloat32, 0, most_parts), got))
          << most_parts << " parts";
  }
}

TEST_P(CudaAttention, AgreesOverChunksOfCachedPositions) {
  CheckCached(Shape(1, 2, 16), Cached(kChunkKeys - 1, {18}));
  CheckCached(Shape(2, 1, 16), Cached(2 * kChunkKeys, {1}));
  // Branches that are attended together and end in two chunks, all over the store.
  Cached cached(2 * kChunkKeys - 2, {2, 5, 1});
  cached.batch.Scatter(5);
  CheckCached(Shape(1, 3, 16), cached);
}

// Three tiles of three chunks, four items of heads each: more items than chunks, so that parts and counts that are found without
// regard to the items would be another tile's. With few parts one tile is in parts, while blocks have slots for the others.
TEST_P(CudaAttention, HasTheSameBitsHoweverManyOfItsTilesAreInParts) {
  const Cached cached(2 * kChunkKeys, {40});
  Inputs in(Shape(4, 1, 16), cached.batch);
  const auto attend = [&](int32_t most_parts) {
    return Attend(in, cached.Plan(), Way::kTensor, Encoding::kBfloat16, Encoding::kFloat32, 0,
                  most_parts);
  };
  const auto whole = attend(0);
  for (const int32_t most_parts : {4, 6, kMostParts})
    EXPECT_TRUE(SameBits(attend(most_parts), whole)) << most_parts << " parts";
}

TEST_P(CudaAttention, AgreesForBranchesOverOnePrefix) {
  for (const int32_t prefix : {5, 64, 70}) {
    AttentionBatch batch = Branches(prefix, {1, 5, 20, 2, 1});
    Check(Shape(1, 2, 32), batch);
    batch.Scatter(3);
    Check(Shape(1, 2, 32), batch);
  }
  // Enough in common to attend several branches together, and branches that end in the middle of that.
  AttentionBatch batch;
  const auto prefix = batch.AddRun({}, 133);
  for (const int32_t rows : {3, 1, 4, 1}) batch.AddRun(batch.AddRun(prefix, rows), 2);
  batch.Scatter(4);
  Check(Shape(2, 1, 16), batch);
}

INSTANTIATE_TEST_SUITE_P(Orders, CudaAttention, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& order : emulation::EveryOrder())
                             names.push_back(emulation::NameOf(order));
                           return names;
                         }()),
                         [](const auto& order) {
                           std::string name = order.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

TEST(CudaAttentionParts, TakeMemoryForEveryHeadAndBlock) {
  const AttentionShape shape = Shape(2, 3, 16);
  const int64_t bytes = AttentionPartBytes(shape, Encoding::kBfloat16, kMultiprocessors);
  // Slots of 32 queries of 64 columns and two numbers, for four items of heads, and two for each of two blocks a multiprocessor.
  const int64_t slots = kMostParts * 4 + 2 * 2 * kMultiprocessors;
  EXPECT_EQ(bytes, kMostParts * 4 * 4 + slots * 32 * (64 + 2) * 4);
  EXPECT_EQ(AttentionPartBytes(shape, Encoding::kFloat32, kMultiprocessors), 0);
}

// Blocks run at the same time on a GPU, but one after the other when emulated, where it goes unnoticed if two of them share slots:
// so it is seen from what they leave. Each block has whole tiles of three chunks, the first two of which wait, in a slot each.
TEST(CudaAttentionParts, OfWholeTilesWaitInTwoSlotsOfEachBlock) {
  emulation::SetThreadOrder({});
  const Cached cached(2 * kChunkKeys, {40});
  const AttentionShape shape = Shape(2, 1, 16);
  Inputs in(shape, cached.batch);
  std::vector<std::byte> left;
  Attend(in, cached.Plan(), Way::kTensor, Encoding::kBfloat16, Encoding::kFloat32, 0, 0, &left);
  // As in TakeMemoryForEveryHeadAndBlock: those of the blocks come last. They were zeros before.
  const size_t slot = 32 * (64 + 2) * 4, slots = 2 * 2 * kMultiprocessors;
  const auto used = std::span(left).last(slots * slot);
  for (size_t i = 0; i < slots; ++i)
    EXPECT_TRUE(std::ranges::any_of(used.subspan(i * slot, slot),
                                    [](std::byte b) { return b != std::byte{0}; }))
        << "slot " << i;
  EXPECT_TRUE(std::ranges::all_of(std::span(left).first(left.size() - used.size()),
                                  [](std::byte b) { return b == std::byte{0}; }));
}

// All that a row's result is made of, for both ways.
class CudaAttentionRow : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override { emulation::SetThreadOrder({}); }
  Way way() const { return GetParam(); }
};

TEST_P(CudaAttentionRow, HasTheSameBitsAloneAndInABatch) {
  Inputs in(Shape(1, 3, 48), Branches(150, {1, 5, 20, 2, 1, 33}));
  const auto together = Attend(in, way());
  for (const AttentionRun& run : in.batch.runs) {
    for (int32_t r = 0; r < run.rows; r += 7) {
      AttentionRun alone = run;
      alone.first_row += r;
      alone.first_position += r;
      alone.rows = 1;
      PassPlan plan = in.batch.Plan();
      plan.runs = {&alone, 1};
      const auto first = static_cast<size_t>(alone.first_row * in.shape.q_cols());
      const auto cols = static_cast<size_t>(in.shape.q_cols());
      const auto got = Attend(in, plan, way());
      EXPECT_TRUE(
          SameBits(std::span(got).subspan(first, cols), std::span(together).subspan(first, cols)))
          << "row " << alone.first_row;
    }
  }
}

TEST_P(CudaAttentionRow, HasTheSameBitsAloneAndInABatchOverSeveralChunks) {
  const Cached cached(kChunkKeys - 20, {30, 5, 21});
  Inputs in(Shape(1, 2, 16), cached.batch);
  const auto together = Attend(in, cached.Plan(), way());
  int32_t count = 0;
  for (const AttentionRun& run : cached.Plan().runs) {
    for (int32_t r = 0; r < run.rows; r += 4, ++count) {
      AttentionRun alone = run;
      alone.first_row += r;
      alone.first_position += r;
      alone.rows = std::min(2, run.rows - r);
      PassPlan plan = in.batch.Plan();
      plan.runs = {&alone, 1};
      const auto got = Attend(in, plan, way());
      const auto first = static_cast<size_t>(alone.first_row * in.shape.q_cols());
      const auto cols = static_cast<size_t>(alone.rows * in.shape.q_cols());
      EXPECT_TRUE(
          SameBits(std::span(got).subspan(first, cols), std::span(together).subspan(first, cols)))
          << "row " << alone.first_row;
    }
  }
  EXPECT_GT(count, 10);
}

TEST_P(CudaAttentionRow, HasTheSameBitsWhereverItsKeysLieAndHoweverLargeTheTableIs) {
  Inputs in(Shape(1, 2, 64), Branches(70, {3, 17, 1}));
  const auto before = Attend(in, way());
  EXPECT_TRUE(SameBits(
      Attend(in, in.batch.Plan(), way(), Encoding::kBfloat16, Encoding::kFloat32, 9), before));
  in.batch.Scatter(2);
  EXPECT_TRUE(SameBits(Attend(in, way()), before));
}

TEST_P(CudaAttentionRow, IsWrittenAsBfloat16ByRounding) {
  Inputs in(Shape(2, 1, 48), Branches(20, {3, 1}));
  auto exact = Attend(in, way());
  for (float& x : exact) x = Rounded(x);
  EXPECT_TRUE(SameBits(Attend(in, in.batch.Plan(), way(), Encoding::kBfloat16, Encoding::kBfloat16),
                       exact));
}

TEST_P(CudaAttentionRow, IsWrittenAsInt8WithAScale) {
  Inputs in(Shape(1, 2, 16), Branches(20, {3, 1}));
  const auto exact = Attend(in, way());
  std::vector<double> tolerances;  // half a step and the roundings of a code's scale
  for (size_t i = 0; i < exact.size(); i += 32) {
    float largest = 0;
    for (const float x : std::span(exact).subspan(i, 32)) largest = std::max(largest, std::abs(x));
    tolerances.insert(tolerances.end(), 32, largest / 127.0 * (0.5 + 127 * 4 * kU));
  }
  EXPECT_TRUE(Within(Attend(in, in.batch.Plan(), way(), Encoding::kBfloat16, Encoding::kInt8),
                     ToDoubles(exact), tolerances));
}

TEST_P(CudaAttentionRow, OfNoRunIsLeftAsItIs) {
  Inputs in(Shape(1, 1, 16), Branches(20, {3, 2}));
  PassPlan plan = in.batch.Plan();
  plan.runs = plan.runs.subspan(1, 1);
  const auto all = Attend(in, way()), some = Attend(in, plan, way());
  for (size_t i = 0; i < all.size(); ++i) {
    const bool in_run = i / 16 >= 20 && i / 16 < 23;
    EXPECT_EQ(some[i], in_run ? all[i] : 7) << i;
  }
}

TEST_P(CudaAttentionRow, IsMissingInAnEmptyPlan) {
  Inputs in(Shape(1, 1, 16), OneRun(2));
  const auto out = Attend(in, {}, way(), Encoding::kBfloat16, Encoding::kFloat32, 4);
  EXPECT_TRUE(SameBits(out, std::vector<float>(32, 7)));
  EXPECT_TRUE(SameBits(Attend(in, {}, way()), out));
}

TEST_P(CudaAttentionRow, IsSpoiledByWhatIsNoNumberOnlyIfItSeesThat) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const AttentionShape shape = Shape(1, 2, 48);
  const Inputs clean(shape, Branches(40, {3, 20, 2}));
  Inputs copy = clean;
  const auto want = Attend(copy, way());
  const int32_t bad = 45;  // in the second branch, rows 43 … 62
  for (int what = 0; what < 4; ++what) {
    SCOPED_TRACE(what);
    Inputs in = clean;
    if (what == 0) in.Key(bad)[5] = nan;
    if (what == 1) in.Value(bad)[47] = nan;
    if (what == 2) in.Value(bad)[0] = -infinity;
    if (what == 3) in.Query(bad)[3] = nan;  // of the first head
    const auto got = Attend(in, way());
    for (int32_t r = 0; r < in.batch.rows(); ++r) {
      const auto cols = static_cast<size_t>(shape.q_cols());
      const auto row = std::span(got).subspan(static_cast<size_t>(r) * cols, cols);
      const auto same = std::span(want).subspan(static_cast<size_t>(r) * cols, cols);
      const bool sees = what == 3 ? r == bad : r >= bad && r < 63;
      if (!sees) {
        EXPECT_TRUE(SameBits(row, same)) << "row " << r;
        continue;
      }
      const size_t end = what == 3 ? cols / 2 : cols;
      EXPECT_TRUE(SameBits(row.subspan(end), same.subspan(end))) << "row " << r;
      // The simple way keeps to the column of a value.
      const size_t first = way() == Way::kSimple && what == 1 ? 47 : 0;
      EXPECT_FALSE(std::isfinite(row[first])) << "row " << r;
      for (size_t c = 0; way() == Way::kTensor && c < end; ++c)
        EXPECT_TRUE(std::isnan(row[c])) << "row " << r << ", column " << c;
    }
  }
}

TEST_P(CudaAttentionRow, TakesLargeScores) {
  Inputs in(AttentionShape{1, 1, 16, 1}, OneRun(40));
  for (int32_t r = 0; r < 40; ++r) {
    std::fill_n(in.Query(r), 16, 1024.f);
    std::fill_n(in.Key(r), 16, r == 21 ? 1024.f : -1024.f);
  }
  const auto out = Attend(in, way());
  // All weight is on the one large score, once it is seen; before, all keys weigh alike.
  for (int32_t r = 21; r < 40; ++r)
    EXPECT_TRUE(SameBits(std::span(out).subspan(static_cast<size_t>(r) * 16, 16),
                         std::span(in.Value(21), 16)))
        << r;
  EXPECT_TRUE(SameBits(std::span(out).first(16), std::span(in.Value(0), 16)));
  for (const float x : out) EXPECT_TRUE(std::isfinite(x));
}

TEST_P(CudaAttentionRow, TakesALargeScoreInAnyBlockOfAStageAndInALaterChunk) {
  const Cached cached(kChunkKeys + 20, {1});
  for (const int32_t large : {5, 21, 37, 53, kChunkKeys + 10}) {
    Inputs in(AttentionShape{1, 1, 16, 1}, cached.batch);
    std::fill_n(in.Query(kChunkKeys + 20), 16, 1024.f);
    for (int32_t r = 0; r < in.batch.rows(); ++r)
      std::fill_n(in.Key(r), 16, r == large ? 1024.f : -1024.f);
    const auto out = Attend(in, cached.Plan(), way());
    EXPECT_TRUE(SameBits(std::span(out).last(16), std::span(in.Value(large), 16))) << large;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaAttentionRow, ::testing::Values(Way::kTensor, Way::kSimple),
                         [](const auto& ways) {
                           return ways.param == Way::kTensor ? "TensorCores" : "Simple";
                         });

TEST(CudaAttentionSimple, TakesFloat32StoresAndOddSizes) {
  emulation::SetThreadOrder({});
  for (const int32_t dim : {2, 18, 33, 255}) {
    Inputs in(Shape(2, 3, dim), Branches(20, {3, 14}), 5);
    for (float& x : in.qkv) x *= 1 + 0x1p-13f;
    EXPECT_FALSE(AttendsOnTensorCores(in.shape, Encoding::kBfloat16));
    const Wanted wanted = WantedOf(in, Way::kSimple);
    EXPECT_TRUE(Within(Attend(in, in.batch.Plan(), Way::kSimple, Encoding::kFloat32), wanted.values,
                       wanted.tolerances));
  }
  EXPECT_FALSE(AttendsOnTensorCores(Shape(1, 1, 64), Encoding::kFloat32));
  EXPECT_TRUE(AttendsOnTensorCores(Shape(1, 1, 64), Encoding::kBfloat16));
}

}  // namespace
}  // namespace sysone
