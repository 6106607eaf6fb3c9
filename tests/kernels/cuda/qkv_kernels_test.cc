// Norm and rotation of heads, and what is kept of keys and values, on the emulated device, against plain loops in double.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "kernels/cuda/row_kernels.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/cuda/device_values.h"

namespace sysone {
namespace {

constexpr double kU = 0x1p-24;
constexpr int32_t kRows = 4;
constexpr int32_t kStoreRows = 6;
const std::vector<int32_t> kPositions = {0, 5, 1, 12};
const std::vector<int32_t> kKvRows = {4, kNoKvRow, 0, 5};

// One case: inputs on the host, and what is to come of them.
struct Case {
  AttentionShape shape;
  bool q_norm, k_norm;
  std::vector<float> qkv, cos, sin, q_weight, k_weight;

  Case(int32_t heads, int32_t kv_heads, int32_t dim, bool with_q_norm, bool with_k_norm)
      : shape{.heads = heads, .kv_heads = kv_heads, .head_dim = dim, .scale = 1},
        q_norm(with_q_norm),
        k_norm(with_k_norm),
        qkv(RandomValues(kRows * shape.qkv_cols(), static_cast<uint32_t>(dim), 2)),
        q_weight(RandomValues(dim, 2)),
        k_weight(RandomValues(dim, 3)) {
    for (int32_t i = 0; i < 13 * dim / 2; ++i) {
      cos.push_back(std::cos(static_cast<float>(i) * 0.37f));
      sin.push_back(std::sin(static_cast<float>(i) * 0.37f));
    }
  }

  // Of qkv afterwards: values and tolerances.
  struct Expected {
    std::vector<double> values, tolerances;
  };
  Expected Rotated() const {
    Expected expected{{qkv.begin(), qkv.end()}, std::vector<double>(qkv.size())};
    const int64_t dim = shape.head_dim, half = dim / 2;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
        double* head = expected.values.data() + r * shape.qkv_cols() + h * dim;
        double* tolerance = expected.tolerances.data() + (head - expected.values.data());
        const bool norm = h < shape.heads ? q_norm : k_norm;
        if (norm) Normalize(head, h < shape.heads ? q_weight : k_weight);
        // A sum of at most 2 · 8 squares a lane and a tree of five levels, its root, six more operations; of a rotation each
        // result has three roundings relative to |a| + |b|, at most √2 lengths of the pair.
        const double error = 3 * kU + (norm ? (21 / 2.0 + 6) * kU : 0);
        for (int64_t i = 0; i < half; ++i) {
          const auto at = static_cast<size_t>(kPositions[static_cast<size_t>(r)] * half + i);
          const double a = head[i], b = head[i + half];
          head[i] = a * cos[at] - b * sin[at];
          head[i + half] = a * sin[at] + b * cos[at];
          tolerance[i] = tolerance[i + half] = error * std::sqrt(2.0) * std::hypot(a, b);
        }
      }
    }
    return expected;
  }

 private:
  static void Normalize(double* head, const std::vector<float>& weight) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += head[i] * head[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + 1e-6f);
    for (size_t i = 0; i < weight.size(); ++i) head[i] *= scale * weight[i];
  }
};

// The device's copy of a case and its results.
template <class Stored>
class OnDevice {
 public:
  explicit OnDevice(const Case& from, size_t skipped = 0)
      : case_(from),
        qkv_(from.qkv, skipped),
        cos_(from.cos),
        sin_(from.sin),
        q_weight_(from.q_weight),
        k_weight_(from.k_weight),
        positions_(kPositions),
        kv_rows_(kKvRows),
        keys_(kStoreRows * from.shape.kv_cols()),
        values_(kStoreRows * from.shape.kv_cols()) {}

  void NormRope() {
    LaunchNormRope(qkv_.data(), case_.shape, rope(), q_norm(), k_norm(), 1e-6f, positions_.data(),
                   kRows, nullptr);
  }
  void StoreKv() { LaunchStoreKv(qkv_.data(), case_.shape, store(), kRows, nullptr); }
  void Both() {
    LaunchNormRopeStoreKv(qkv_.data(), case_.shape, rope(), q_norm(), k_norm(), 1e-6f,
                          positions_.data(), store(), kRows, nullptr);
  }
  std::vector<float> qkv() const { return qkv_.Read(); }
  std::vector<Stored> keys() const { return keys_.Read(); }
  std::vector<Stored> values() const { return values_.Read(); }

 private:
  RopeRows rope() const { return {cos_.data(), sin_.data()}; }
  const float* q_norm() const { return case_.q_norm ? q_weight_.data() : nullptr; }
  const float* k_norm() const { return case_.k_norm ? k_weight_.data() : nullptr; }
  KvRows store() const {
    return {sizeof(Stored) == 4 ? Encoding::kFloat32 : Encoding::kBfloat16, keys_.data(),
            values_.data(), kv_rows_.data()};
  }

  const Case& case_;
  DeviceValues<float> qkv_, cos_, sin_, q_weight_, k_weight_;
  DeviceValues<int32_t> positions_, kv_rows_;
  DeviceValues<Stored> keys_, values_;
};

uint16_t StoredAs(float value, uint16_t) { return ToBfloat16(value); }
uint32_t StoredAs(float value, uint32_t) { return std::bit_cast<uint32_t>(value); }

// Rows of a store after columns [first, first + cols) of qkv's rows went to kKvRows; 0xFF where nothing did.
template <class Stored>
std::vector<Stored> StoreOf(const std::vector<float>& qkv, int64_t first, int64_t cols) {
  const int64_t stride = std::ssize(qkv) / kRows;
  std::vector<Stored> store(static_cast<size_t>(kStoreRows * cols), static_cast<Stored>(-1));
  for (size_t r = 0; r < kRows; ++r)
    for (int64_t c = 0; c < cols && kKvRows[r] != kNoKvRow; ++c)
      store[static_cast<size_t>(kKvRows[r] * cols + c)] =
          StoredAs(qkv[r * static_cast<size_t>(stride) + static_cast<size_t>(first + c)], Stored());
  return store;
}

// Both sides of what lanes hold: by fours up to 256 columns, one by one up to 64.
const std::vector<int32_t> kDims = {2, 6, 8, 16, 18, 24, 64, 66, 80, 96, 128, 130, 256, 264};

using QkvKernelsTest = KernelTest;

TEST_P(QkvKernelsTest, NormRopeAgreesWithAndWithoutNorms) {
  for (const int32_t dim : kDims) {
    for (const int norms : {0, 1, 2, 3}) {
      for (const size_t skipped : {0, 1}) {
        const Case one(3, 1, dim, norms & 1, norms & 2);
        OnDevice<uint16_t> run(one, skipped);
        run.NormRope();
        const auto want = one.Rotated();
        EXPECT_TRUE(Within(run.qkv(), want.values, want.tolerances)) << dim << " norms " << norms;
      }
    }
  }
}

template <class Stored>
void FusedAndAloneAreTheSame(const Case& one, size_t skipped) {
  OnDevice<Stored> alone(one, skipped), fused(one, skipped);
  alone.NormRope();
  alone.StoreKv();
  fused.Both();
  const auto qkv = alone.qkv();
  EXPECT_TRUE(SameBits(fused.qkv(), qkv));
  const int64_t q_cols = one.shape.q_cols(), kv_cols = one.shape.kv_cols();
  const auto keys = StoreOf<Stored>(qkv, q_cols, kv_cols);
  const auto values = StoreOf<Stored>(qkv, q_cols + kv_cols, kv_cols);
  EXPECT_EQ(alone.keys(), keys);
  EXPECT_EQ(alone.values(), values);
  EXPECT_EQ(fused.keys(), keys);
  EXPECT_EQ(fused.values(), values);
}

TEST_P(QkvKernelsTest, KeysAndValuesAreStoredWhereTheyShallBeFusedOrAlone) {
  for (const int32_t dim : kDims) {
    for (const bool norms : {false, true}) {
      const Case one(4, 2, dim, norms, norms);
      for (const size_t skipped : {0, 1}) {
        SCOPED_TRACE(dim);
        FusedAndAloneAreTheSame<uint16_t>(one, skipped);
        FusedAndAloneAreTheSame<uint32_t>(one, skipped);
      }
    }
  }
}

TEST_P(QkvKernelsTest, HeadsOfOddSizesAreStored) {
  for (const int32_t dim : {1, 3, 7, 33}) {
    const Case one(1, 1, dim, false, false);
    OnDevice<uint16_t> run(one);
    run.StoreKv();
    EXPECT_EQ(run.keys(), StoreOf<uint16_t>(one.qkv, dim, dim));
    EXPECT_EQ(run.values(), StoreOf<uint16_t>(one.qkv, 2 * dim, dim));
  }
}

TEST_P(QkvKernelsTest, AHeadWithoutANumberIsNoneAndTheOthersAreAsBefore) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 3e38f}) {
    for (const int32_t dim : {6, 16, 128}) {
      Case one(3, 1, dim, true, true);
      OnDevice<uint16_t> plain(one);
      plain.NormRope();
      const auto first = static_cast<size_t>(one.shape.qkv_cols() + dim);  // row 1, head 1
      one.qkv[first + static_cast<size_t>(dim) - 1] = bad;
      OnDevice<uint16_t> run(one);
      run.NormRope();
      const auto before = plain.qkv(), got = run.qkv();
      for (size_t i = 0; i < got.size(); ++i) {
        if (i >= first && i < first + static_cast<size_t>(dim))
          EXPECT_TRUE(std::isnan(got[i])) << i;
        else
          EXPECT_EQ(got[i], before[i]) << i;
      }
    }
  }
}

TEST_P(QkvKernelsTest, NoRowsAreNothingToDo) {
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 8, .scale = 1};
  const DeviceValues<float> nothing(0);
  const DeviceValues<int32_t> no_rows(0);
  const KvRows store{Encoding::kBfloat16, nothing.data(), nothing.data(), no_rows.data()};
  const RopeRows rope{nothing.data(), nothing.data()};
  LaunchNormRope(nothing.data(), shape, rope, nullptr, nullptr, 1e-6f, no_rows.data(), 0, nullptr);
  LaunchStoreKv(nothing.data(), shape, store, 0, nullptr);
  LaunchNormRopeStoreKv(nothing.data(), shape, rope, nullptr, nullptr, 1e-6f, no_rows.data(), store,
                        0, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Orders, QkvKernelsTest, ::testing::ValuesIn(OrderNames()), OrderTestName);

}  // namespace
}  // namespace sysone
