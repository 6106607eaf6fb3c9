// Logits of labels and summaries of the head, on the emulated device, against plain loops in double.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/readout_kernels.h"

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "tests/kernels/compare.h"
#include "tests/kernels/cuda/device_values.h"

namespace sysone {
namespace {

constexpr double kU = 0x1p-24;

// A head of one of the two types on the device, and its values on the host.
class Head {
 public:
  Head(Encoding encoding, std::vector<float> values, int64_t cols, size_t skipped = 0)
      : values_(encoding == Encoding::kBfloat16 ? FromBits(AsBfloat16(values)) : values),
        cols_(cols),
        encoding_(encoding),
        narrow_(AsBfloat16(values_), skipped),
        wide_(values_, skipped) {}

  TableRows rows() const {
    const void* const at =
        encoding_ == Encoding::kBfloat16 ? static_cast<const void*>(narrow_.data()) : wide_.data();
    return {encoding_, at, vocab(), cols_};
  }
  int64_t vocab() const { return std::ssize(values_) / cols_; }
  // x · row v, and how far a float32 sum may be from it: a lane adds cols / 32 products, then the warp five times.
  struct Logit {
    double value = 0, tolerance = 0;
  };
  Logit At(const float* x, int64_t v) const {
    Logit logit;
    double magnitude = 0;
    for (int64_t c = 0; c < cols_; ++c) {
      const double product =
          static_cast<double>(x[c]) * values_[static_cast<size_t>(v * cols_ + c)];
      logit.value += product;
      magnitude += std::abs(product);
    }
    logit.tolerance = (static_cast<double>(cols_) / 32 + 8 + 5) * kU * magnitude;
    return logit;
  }

 private:
  std::vector<float> values_;
  int64_t cols_;
  Encoding encoding_;
  DeviceValues<uint16_t> narrow_;
  DeviceValues<float> wide_;
};

std::vector<float> LabelLogits(const std::vector<float>& x, const Head& head,
                               const std::vector<int32_t>& row_of,
                               const std::vector<TokenId>& ids) {
  const DeviceValues<float> device_x(x), out(std::ssize(ids));
  LaunchLabelLogits(device_x.data(), head.rows(), DeviceValues<int32_t>(row_of).data(),
                    DeviceValues<int32_t>(ids).data(), static_cast<int32_t>(ids.size()), out.data(),
                    nullptr);
  return out.Read();
}

std::vector<HeadSummary> Summaries(const std::vector<float>& x, const Head& head, int32_t rows) {
  const DeviceValues<float> device_x(x);
  const DeviceValues<uint8_t> scratch(SummarizeHeadScratchBytes(head.vocab(), rows));
  const DeviceValues<HeadSummary> out(rows);
  LaunchSummarizeHead(device_x.data(), head.rows(), rows, scratch.data(), out.data(), nullptr);
  return out.Read();
}

constexpr Encoding kEncodings[] = {Encoding::kFloat32, Encoding::kBfloat16};

using ReadOutKernelsTest = KernelTest;

TEST_P(ReadOutKernelsTest, LabelLogitsAreDotProductsWithRowsOfTheHead) {
  std::vector<int64_t> sizes(20);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {33, 64, 128, 256, 264, 520, 1001, 1024});
  const std::vector<int32_t> row_of = {2, 0, 0, 1, 2, 1};
  const std::vector<TokenId> ids = {19, 0, 7, 7, kNoToken, 1};
  for (const int64_t cols : sizes) {
    const auto x = RandomValues(3 * cols, 1);
    for (const Encoding encoding : kEncodings) {
      for (const size_t skipped : {0, 1}) {
        const Head head(encoding, RandomValues(20 * cols, 2), cols, skipped);
        std::vector<double> want, tolerances;
        for (size_t i = 0; i < ids.size(); ++i) {
          const auto logit =
              ids[i] == kNoToken ? Head::Logit() : head.At(x.data() + row_of[i] * cols, ids[i]);
          want.push_back(logit.value);
          tolerances.push_back(logit.tolerance);
        }
        EXPECT_TRUE(Within(LabelLogits(x, head, row_of, ids), want, tolerances)) << cols;
      }
    }
  }
}

TEST_P(ReadOutKernelsTest, SummarizeHeadSeesTheWholeVocabulary) {
  for (const Encoding encoding : kEncodings) {
    for (const int64_t cols : {3, 64, 264}) {
      for (const int64_t vocab : {1, 2, 31, 32, 33, 200}) {
        const Head head(encoding, RandomValues(vocab * cols, 3), cols);
        for (const int32_t rows : {1, 2, 4, 5}) {
          const auto x = RandomValues(rows * cols, 4, 0.4f);
          const auto got = Summaries(x, head, rows);
          for (int32_t r = 0; r < rows; ++r) {
            std::vector<double> logits;
            double tolerance = 0, total = 0;
            for (int64_t v = 0; v < vocab; ++v) {
              const auto logit = head.At(x.data() + r * cols, v);
              logits.push_back(logit.value);
              tolerance = std::max(tolerance, logit.tolerance);
            }
            const double largest = *std::ranges::max_element(logits);
            for (const double logit : logits) total += std::exp(logit - largest);
            const double want = largest + std::log(total);
            // Every exponent is off by a logit's error and twice by a difference's; two factors of exp are good to 2^-22, five
            // levels of a tree follow; the rest is double.
            const double error =
                tolerance + 2 * 0x1p-22 + 8 * kU + 4 * kU * std::abs(largest) + kU * std::abs(want);
            const auto& summary = got[static_cast<size_t>(r)];
            EXPECT_TRUE(
                Within(std::vector{summary.log_sum_exp}, std::vector{want}, std::vector{error}))
                << vocab << " tokens, " << rows << " rows, " << cols << " columns";
            ASSERT_GE(summary.argmax, 0);
            ASSERT_LT(summary.argmax, vocab);
            EXPECT_GE(logits[static_cast<size_t>(summary.argmax)], largest - 2 * tolerance);
          }
        }
      }
    }
  }
}

TEST_P(ReadOutKernelsTest, TheFirstOfEqualMaximaWinsWhereverItLies) {
  const auto head = [](int64_t vocab, int64_t at) {
    std::vector<float> values(static_cast<size_t>(vocab), 1.0f);
    for (int64_t v = at; v < vocab; v += 50) values[static_cast<size_t>(v)] = 2;
    return std::make_unique<Head>(Encoding::kBfloat16, values, 1);
  };
  for (const int64_t at : {0, 1, 31, 32, 300, 399}) {
    const auto got = Summaries({0, 1, 1}, *head(400, at), 3);
    EXPECT_EQ(got[2].argmax, at);
    EXPECT_EQ(got[0].argmax, 0);
  }
  // More tiles than threads put them together: the first thread has tiles 0 and 256.
  for (const int64_t at : {5, 256 * 32 + 1})
    EXPECT_EQ(Summaries({1}, *head(257 * 32, at), 1)[0].argmax, at);
}

TEST_P(ReadOutKernelsTest, ALabelHasTheSameBitsInBothAndAmongAnyRows) {
  for (const Encoding encoding : kEncodings) {
    for (const int64_t cols : {7, 64, 1000}) {
      const auto x = RandomValues(5 * cols, 5), values = RandomValues(3 * cols, 6);
      const Head head(encoding, values, cols);
      const auto logits = LabelLogits(x, head, {0, 1, 2, 3, 4}, {2, 2, 2, 2, 2});
      // The log of a sum of one is its logit.
      const Head alone(encoding, {values.begin() + 2 * cols, values.end()}, cols);
      const auto summaries = Summaries(x, alone, 5);
      const auto all = Summaries(x, head, 5);
      for (size_t r = 0; r < 5; ++r) {
        EXPECT_EQ(summaries[r].log_sum_exp, logits[r]);
        const std::vector<float> row(x.begin() + static_cast<int64_t>(r) * cols,
                                     x.begin() + static_cast<int64_t>(r + 1) * cols);
        EXPECT_EQ(Summaries(row, head, 1)[0].log_sum_exp, all[r].log_sum_exp);
        EXPECT_EQ(Summaries(row, head, 1)[0].argmax, all[r].argmax);
      }
    }
  }
}

TEST_P(ReadOutKernelsTest, HugeLogitsAreSummedAndThoseThatAreNoNumbersSpoilTheirRowAlone) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(100, 1.0f);
  values[70] = 3;
  const Head head(Encoding::kFloat32, values, 1);
  const auto got = Summaries({1e38f, -1e38f, kNan, kInfinity, -kInfinity, 0}, head, 6);
  EXPECT_EQ(got[0].log_sum_exp, 1e38f * 3);
  EXPECT_EQ(got[0].argmax, 70);
  EXPECT_EQ(got[1].log_sum_exp, -1e38f);  // + log(99), which is lost
  EXPECT_EQ(got[1].argmax, 0);
  EXPECT_TRUE(std::isnan(got[2].log_sum_exp));
  EXPECT_TRUE(std::isnan(got[3].log_sum_exp));
  EXPECT_EQ(got[4].log_sum_exp, -kInfinity);
  EXPECT_EQ(got[4].argmax, 0);
  EXPECT_NEAR(got[5].log_sum_exp, std::log(100.0), 1e-6);
  for (const auto& summary : got) {
    EXPECT_GE(summary.argmax, 0);
    EXPECT_LT(summary.argmax, 100);
  }
  // A single token that is no number, in a place of its own in each tile.
  for (const size_t at : {size_t{0}, size_t{31}, size_t{50}, size_t{99}}) {
    auto spoilt = values;
    spoilt[at] = kNan;
    const auto summary = Summaries({1}, Head(Encoding::kBfloat16, spoilt, 1), 1)[0];
    EXPECT_TRUE(std::isnan(summary.log_sum_exp));
    EXPECT_GE(summary.argmax, 0);
    EXPECT_LT(summary.argmax, 100);
  }
}

TEST_P(ReadOutKernelsTest, NoLabelsAndNoRowsAreNothingToDo) {
  const Head head(Encoding::kBfloat16, RandomValues(40, 7), 4);
  EXPECT_TRUE(LabelLogits({}, head, {}, {}).empty());
  EXPECT_TRUE(Summaries({}, head, 0).empty());
  EXPECT_EQ(SummarizeHeadScratchBytes(40, 0), 0);
}

INSTANTIATE_TEST_SUITE_P(Orders, ReadOutKernelsTest, ::testing::ValuesIn(OrderNames()),
                         OrderTestName);

}  // namespace
}  // namespace sysone
