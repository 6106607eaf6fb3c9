// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/weight_encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/bfloat16.h"

namespace sysone {
namespace {

constexpr float kInt8Levels = 127;
constexpr float kFp8Largest = 448;
constexpr uint8_t kFp8LargestCode = 0x7E;

// Of a column: the largest |w|, NaN where a value is no number or infinite.
float Largest(std::span<const float> row) {
  float largest = 0;
  bool finite = true;
  for (const float w : row) {
    largest = std::max(largest, std::abs(w));
    finite &= std::isfinite(w);
  }
  return finite ? largest : std::numeric_limits<float>::quiet_NaN();
}

// Codes of a row whose largest value becomes `levels`; the other bytes of `out` are zeros already.
template <class Encode>
float Scaled(std::span<const float> row, float levels, std::byte* out, Encode encode) {
  const float largest = Largest(row);
  if (std::isnan(largest)) return largest;
  // Below, the inverse would not be a float.
  if (largest < 0x1p-100f) return 0;
  const float inverse = levels / largest;
  for (size_t i = 0; i < row.size(); ++i) out[i] = std::byte{encode(row[i] * inverse)};
  return largest / levels;
}

}  // namespace

float EncodeWeightRow(Encoding encoding, std::span<const float> row, int64_t stride,
                      std::byte* out) {
  SYSONE_CHECK(std::ssize(row) <= stride, "%zu values in %lld places", row.size(),
               static_cast<long long>(stride));
  std::memset(out, 0, static_cast<size_t>(stride * BytesOf(encoding)));
  switch (encoding) {
    case Encoding::kFloat32:
      if (!row.empty()) std::memcpy(out, row.data(), row.size_bytes());
      return 1;
    case Encoding::kBfloat16:
      for (size_t i = 0; i < row.size(); ++i) {
        const uint16_t value = ToBfloat16(row[i]);
        std::memcpy(out + i * sizeof value, &value, sizeof value);
      }
      return 1;
    case Encoding::kInt8:
      return Scaled(row, kInt8Levels, out, [](float at) {
        return static_cast<uint8_t>(static_cast<int8_t>(std::lrint(at)));
      });
    case Encoding::kFp8:
      return Scaled(row, kFp8Largest, out, ToFp8);
  }
  SYSONE_CHECK(false, "encoding %d", static_cast<int>(encoding));
}

uint8_t ToFp8(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= kFp8Largest) return static_cast<uint8_t>(sign | kFp8LargestCode);
  // Below 2^-6 all steps are 2^-9; the eighth one is 2^-6 itself.
  if (magnitude < 0x1p-6f) return static_cast<uint8_t>(sign | std::lrint(magnitude * 0x1p9f));
  // A float's upper 12 bits have the same shape; its exponent has a bias of 127.
  const uint32_t upper = bits & 0x7FFFFFFFu;
  const uint32_t rounded = (upper + 0x7FFFFu + (upper >> 20 & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - ((127 - 7) << 3)));
}

float FromFp8(uint8_t code) {
  const int exponent = code >> 3 & 0xF, mantissa = code & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((code & 0x7F) == 0x7F) magnitude = std::numeric_limits<float>::quiet_NaN();
  return std::copysign(magnitude, code & 0x80 ? -1.0f : 1.0f);
}

}  // namespace sysone
