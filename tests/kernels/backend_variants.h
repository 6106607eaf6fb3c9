// Every backend of this host in every type and instruction set, beside a reference of the same
// type, and the little that tests of all operations share: data, and ways to get exact values into
// an Operand and out of it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/int8.h"

namespace sysone {

struct Variant {
  std::string name, dtype, isa;
  WeightGrain grain = WeightGrain::kCoarse;
};

// All but the reference itself.
std::vector<Variant> AllVariants();
std::string VariantName(const ::testing::TestParamInfo<Variant>& info);  // for gtest
std::unique_ptr<Backend> MakeVariant(const Variant& variant, int threads);

// Unit roundoff of float32 and of bfloat16.
inline constexpr double kU = 0x1p-24, kU16 = 0x1p-8;
// Rounding errors of n operations behave like a random walk: they exceed kLambda * sqrt(n) units
// with a probability below 2n·exp(-kLambda²/2) (Higham and Mary 2019), 2e-10 for n = 10⁴. The worst
// case, n units, would hide a lost summand.
inline constexpr double kLambda = 8;

class Data {
 public:
  explicit Data(uint32_t seed) : random_(seed) {}
  std::vector<float> Normal(int64_t count, float sigma = 1);
  std::vector<float> Integers(int64_t count, int least, int most);
  int Integer(int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random_);
  }
  template <class T>
  void Shuffle(std::vector<T>& values) {
    std::shuffle(values.begin(), values.end(), random_);
  }

 private:
  std::mt19937 random_;
};

RowReader ReadFrom(const std::vector<float>& values, int64_t cols);  // keeps a copy
// Values as a table or a weight of that type keeps them.
std::vector<float> TableAs(const std::string& dtype, std::vector<float> values);
std::vector<float> WeightAs(const Variant& variant, std::vector<float> values, int64_t in_cols);

std::unique_ptr<Tensor> MakeTensor(Backend& backend, const std::vector<float>& values,
                                   int64_t cols);
std::vector<float> Read(Backend& backend, const Tensor& tensor, int64_t rows, int64_t cols);
// An operand of exactly these values (rounded if the backend's operands are narrower; in int8,
// integers are exact if the largest of each group is the levels' `activation`): silu(64) is 64 in float32.
std::unique_ptr<Operand> MakeOperand(Backend& backend, const std::vector<float>& values,
                                     int64_t cols);
// By a product with the identity, which is exact but in int8 (see OperandError).
std::vector<float> Read(Backend& backend, const Operand& operand, int64_t rows, int64_t cols);
// Relative rounding error of an operand's values, from what becomes of 1 + 2^-12.
double OperandRounding(Backend& backend);

// Base of the conformance tests: `subject_` against `reference_`.
class VariantTest : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override;

  const std::string& dtype() const { return GetParam().dtype; }
  Int8Levels levels() const { return LevelsOf(GetParam().grain); }

  std::unique_ptr<Backend> subject_;
  std::unique_ptr<Backend> reference_;
  // What the subject's operands lose. Relative to each value:
  double operand_rounding_ = 0;
  // From one value that can be written to the next, for each value of an operand [values.size() / cols, cols]: int8 only.
  std::vector<double> OperandSteps(const std::vector<double>& values, int64_t cols) const;
  // Both together, for each value of such an operand that Read returns.
  std::vector<double> OperandError(const std::vector<double>& values, int64_t cols) const;
};

std::vector<double> ToDouble(const std::vector<float>& values);

}  // namespace sysone
