// Helpers of the backend tests.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/backend_variants.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/check.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/isa.h"
#include "kernels/int8.h"

namespace sysone {

std::vector<Variant> AllVariants() {
  std::vector<Variant> variants;
  std::vector<std::string> names = BackendNames();
  names.push_back("cpu-onednn");
  for (const std::string& name : names) {
    if (name == "reference") continue;
    std::vector<std::string> isas = {"auto"};
    if (name == "cpu") isas = IsaNames();
    for (const std::string& isa : isas) {
      for (const char* dtype : {"float32", "bfloat16", "int8"}) {
        Variant variant{name, dtype, isa};
        const auto made = MakeBackend({.name = name, .dtype = dtype, .threads = 1, .isa = isa});
        if (!made.ok() && made.status().code() == Code::kUnsupported) continue;
        variants.push_back(variant);
        if (variant.dtype != "int8") continue;
        variant.grain = WeightGrain::kFine;
        variants.push_back(variant);
      }
    }
  }
  return variants;
}

std::string VariantName(const ::testing::TestParamInfo<Variant>& info) {
  std::string name = info.param.name + "_" + info.param.dtype +
                     (info.param.grain == WeightGrain::kFine ? "_fine_" : "_") + info.param.isa;
  std::ranges::replace_if(
      name, [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

std::unique_ptr<Backend> MakeVariant(const Variant& variant, int threads) {
  auto backend = MakeBackend({.name = variant.name,
                              .dtype = variant.dtype,
                              .threads = threads,
                              .isa = variant.isa,
                              .weight_grain = variant.grain});
  SYSONE_CHECK(backend.ok(), "%s", backend.status().message().c_str());
  return std::move(*backend);
}

std::vector<float> Data::Normal(int64_t count, float sigma) {
  std::normal_distribution<float> distribution(0, sigma);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random_);
  return values;
}

std::vector<float> Data::Integers(int64_t count, int least, int most) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(Integer(least, most));
  return values;
}

RowReader ReadFrom(const std::vector<float>& values, int64_t cols) {
  return [values, cols](int64_t first, int64_t count, float* out) {
    SYSONE_CHECK(first >= 0 && (first + count) * cols <= std::ssize(values), "read past the end");
    std::copy_n(values.begin() + first * cols, count * cols, out);
  };
}

std::vector<float> TableAs(const std::string& dtype, std::vector<float> values) {
  if (dtype != "float32")
    for (float& value : values) value = FromBfloat16(ToBfloat16(value));
  return values;
}

std::vector<float> WeightAs(const Variant& variant, std::vector<float> values, int64_t in_cols) {
  if (variant.dtype != "int8") return TableAs(variant.dtype, std::move(values));
  const auto depth = static_cast<size_t>(in_cols);
  std::vector<uint8_t> codes(depth);
  std::vector<Int8Scale> groups((depth + kInt8Group - 1) / kInt8Group);
  for (size_t first = 0; first < values.size(); first += depth) {
    const std::span<float> column(values.data() + first, depth);
    const float unit =
        QuantiseColumn(column, LevelsOf(variant.grain).weight, codes.data(), groups.data());
    for (size_t k = 0; k < depth; ++k)
      column[k] = WeightOf(groups[k / kInt8Group], codes[k]) * unit;
  }
  return values;
}

std::unique_ptr<Tensor> MakeTensor(Backend& backend, const std::vector<float>& values,
                                   int64_t cols) {
  const auto rows = static_cast<int32_t>(std::ssize(values) / cols);
  auto tensor = backend.NewTensor(std::max(rows, 1), cols);
  backend.Upload(values, rows, *tensor);
  return tensor;
}

std::vector<float> Read(Backend& backend, const Tensor& tensor, int64_t rows, int64_t cols) {
  std::vector<float> values(static_cast<size_t>(rows * cols));
  backend.Download(tensor, static_cast<int32_t>(rows), values);
  return values;
}

std::unique_ptr<Operand> MakeOperand(Backend& backend, const std::vector<float>& values,
                                     int64_t cols) {
  const int64_t rows = std::ssize(values) / cols;
  std::vector<float> gate_up;
  for (int64_t r = 0; r < rows; ++r) {
    gate_up.insert(gate_up.end(), static_cast<size_t>(cols), 64.0f);
    for (int64_t c = 0; c < cols; ++c)
      gate_up.push_back(values[static_cast<size_t>(r * cols + c)] / 64);
  }
  auto operand = backend.NewOperand(std::max<int64_t>(rows, 1), cols);
  backend.GatedSilu(*MakeTensor(backend, gate_up, 2 * cols), static_cast<int32_t>(rows), *operand);
  return operand;
}

std::vector<float> Read(Backend& backend, const Operand& operand, int64_t rows, int64_t cols) {
  std::vector<float> identity(static_cast<size_t>(cols * cols));
  for (int64_t i = 0; i < cols; ++i) identity[static_cast<size_t>(i * cols + i)] = 1;
  auto out = backend.NewTensor(std::max<int64_t>(rows, 1), cols);
  backend.MatMul(operand, *backend.LoadWeight(cols, cols, ReadFrom(identity, cols)), nullptr,
                 static_cast<int32_t>(rows), *out);
  return Read(backend, *out, rows, cols);
}

double OperandRounding(Backend& backend) {
  const float value = 1 + 0x1p-12f;
  return Read(backend, *MakeOperand(backend, {value}, 1), 1, 1)[0] == value ? 0 : kU16;
}

void VariantTest::SetUp() {
  // Three threads: more than some pieces of work have rows, fewer than others.
  subject_ = MakeVariant(GetParam(), 3);
  reference_ = MakeVariant({"reference", GetParam().dtype, "auto", GetParam().grain}, 1);
  operand_rounding_ = dtype() == "int8" ? 0 : OperandRounding(*subject_);
}

std::vector<double> VariantTest::OperandSteps(const std::vector<double>& values,
                                              int64_t cols) const {
  std::vector<double> steps(values.size());
  if (dtype() != "int8") return steps;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(cols)) {
    for (size_t first = 0; first < static_cast<size_t>(cols); first += kInt8Group) {
      const size_t count = std::min<size_t>(kInt8Group, static_cast<size_t>(cols) - first);
      double largest = 0;
      for (size_t i = 0; i < count; ++i)
        largest = std::max(largest, std::abs(values[row + first + i]));
      std::fill_n(steps.begin() + static_cast<int64_t>(row + first), count,
                  largest / levels().activation);
    }
  }
  return steps;
}

std::vector<double> VariantTest::OperandError(const std::vector<double>& values,
                                              int64_t cols) const {
  std::vector<double> errors = OperandSteps(values, cols);
  // Half a step; then eight float operations on the way in (largest, step, its inverse, product) and out (the identity's
  // scale, two products), on codes of up to that many steps. A group below 2^-100 is zeros.
  for (size_t i = 0; i < errors.size(); ++i)
    errors[i] = operand_rounding_ * std::abs(values[i]) +
                errors[i] * (0.5 + 8 * kU * levels().activation) +
                (dtype() == "int8" ? std::min(std::abs(values[i]), 0x1p-100) : 0);
  return errors;
}

std::vector<double> ToDouble(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

}  // namespace sysone
