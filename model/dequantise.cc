// Weights as float32, from every type that we read. The quantised ones are ggml's: blocks of 32
// elements with one scale (and minimum), or superblocks of 256 whose sub-scales are small integers.
// The multiplications are rounded in the order that the format's reference does them, so results
// agree to the last bit; the build turns contraction to FMA off here.
//
// In every type byte j of a run of n bytes of nibbles holds element j (low) and n + j (high).
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "model/tensor_index.h"

namespace sysone {
namespace {

// Branch-free and without subnormal operands, so that it vectorises and flush-to-zero modes do not
// matter.
inline float HalfToFloat(uint32_t half) {
  const uint32_t magnitude = (half & 0x7fffu) << 13;
  const uint32_t exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + (112u << 23);  // exponent bias 15 → 127
  const uint32_t infinite = magnitude + (224u << 23);
  // A subnormal half is mantissa * 2^-24: put it below 2^-14's leading one, then take that one
  // away.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
  const uint32_t bits = exponent == 0 ? subnormal : exponent == 0x0f800000u ? infinite : normal;
  return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

inline float LoadHalf(const uint8_t* bytes) {
  return HalfToFloat(static_cast<uint32_t>(bytes[0] | bytes[1] << 8));
}

void ReadF16(const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, in + 2 * i, sizeof(half));
    out[i] = HalfToFloat(half);
  }
}

void ReadBF16(const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t high;
    std::memcpy(&high, in + 2 * i, sizeof(high));
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(high) << 16);
  }
}

// The 32 numbers of a block of 16 bytes. Unpacking as bytes first lets the loops below run over whole vectors.
struct Numbers {
  uint8_t q[32];

  explicit Numbers(const uint8_t* nibbles) {
    for (int j = 0; j < 16; ++j) q[j] = nibbles[j] & 15;
    for (int j = 0; j < 16; ++j) q[j + 16] = nibbles[j] >> 4;
  }
  // Element j's fifth bit is bit j of `high`, four little-endian bytes.
  Numbers(const uint8_t* nibbles, const uint8_t* high) : Numbers(nibbles) {
    for (int byte = 0; byte < 4; ++byte)
      for (int bit = 0; bit < 8; ++bit)
        q[8 * byte + bit] |= static_cast<uint8_t>((high[byte] >> bit & 1) << 4);
  }
};

// q * scale + minimum, or with `zero` (q - zero) * scale.
inline void Spread(const Numbers& numbers, float scale, float minimum, float* out) {
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(numbers.q[j]) * scale + minimum;
}
template <int kZero>
inline void SpreadAround(const Numbers& numbers, float scale, float* out) {
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(numbers.q[j] - kZero) * scale;
}

// scale f16, nibbles.
void BlockQ4_0(const uint8_t* in, float* out) {
  SpreadAround<8>(Numbers(in + 2), LoadHalf(in), out);
}

// scale, minimum f16, nibbles.
void BlockQ4_1(const uint8_t* in, float* out) {
  Spread(Numbers(in + 4), LoadHalf(in), LoadHalf(in + 2), out);
}

// scale f16, 32 fifth bits, nibbles.
void BlockQ5_0(const uint8_t* in, float* out) {
  SpreadAround<16>(Numbers(in + 6, in + 2), LoadHalf(in), out);
}

// scale, minimum f16, 32 fifth bits, nibbles.
void BlockQ5_1(const uint8_t* in, float* out) {
  Spread(Numbers(in + 8, in + 4), LoadHalf(in), LoadHalf(in + 2), out);
}

// scale f16, 32 int8.
void BlockQ8_0(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<int8_t>(in[2 + j])) * scale;
}

// Q4_K and Q5_K share their header: scale and minimum (f16) of the superblock, then 12 bytes with 8
// pairs of 6-bit sub-scales and sub-minimums. Pair j < 4 has its scale in byte j and its minimum in
// byte j + 4 (6 low bits); pair j ≥ 4 has its low nibbles in byte j + 4 and its upper two bits on
// top of bytes j - 4 (scale) and j (minimum).
struct SubScales {
  float scale[8], minimum[8];
};

SubScales ReadSubScales(const uint8_t* in) {
  const float scale = LoadHalf(in), minimum = LoadHalf(in + 2);
  const uint8_t* const packed = in + 4;
  SubScales sub;
  for (int j = 0; j < 8; ++j) {
    const int s = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
    const int m = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    sub.scale[j] = scale * static_cast<float>(s);
    sub.minimum[j] = minimum * static_cast<float>(m);
  }
  return sub;
}

// Four runs of 32 bytes; a run's low nibbles are sub-block 2r, its high nibbles 2r + 1: q * scale -
// minimum.
void BlockQ4_K(const uint8_t* in, float* out) {
  const SubScales sub = ReadSubScales(in);
  for (int run = 0; run < 4; ++run) {
    const uint8_t* const nibbles = in + 16 + 32 * run;
    float* const to = out + 64 * run;
    const float scale0 = sub.scale[2 * run], minimum0 = sub.minimum[2 * run];
    const float scale1 = sub.scale[2 * run + 1], minimum1 = sub.minimum[2 * run + 1];
    for (int j = 0; j < 32; ++j) to[j] = static_cast<float>(nibbles[j] & 15) * scale0 - minimum0;
    for (int j = 0; j < 32; ++j)
      to[j + 32] = static_cast<float>(nibbles[j] >> 4) * scale1 - minimum1;
  }
}

// As Q4_K with a fifth bit: bit s of byte j of 32 bytes belongs to element j of sub-block s.
void BlockQ5_K(const uint8_t* in, float* out) {
  const SubScales sub = ReadSubScales(in);
  const uint8_t* const high = in + 16;
  for (int run = 0; run < 4; ++run) {
    const uint8_t* const nibbles = in + 48 + 32 * run;
    float* const to = out + 64 * run;
    const float scale0 = sub.scale[2 * run], minimum0 = sub.minimum[2 * run];
    const float scale1 = sub.scale[2 * run + 1], minimum1 = sub.minimum[2 * run + 1];
    for (int j = 0; j < 32; ++j) {
      const int q = (nibbles[j] & 15) | (high[j] >> (2 * run) & 1) << 4;
      to[j] = static_cast<float>(q) * scale0 - minimum0;
    }
    for (int j = 0; j < 32; ++j) {
      const int q = nibbles[j] >> 4 | (high[j] >> (2 * run + 1) & 1) << 4;
      to[j + 32] = static_cast<float>(q) * scale1 - minimum1;
    }
  }
}

// Two halves of 128 elements. Of a half: 64 bytes of low nibbles, 32 bytes whose bit pairs are the
// upper bits of the four quarters of 32 elements, 8 int8 sub-scales for runs of 16. (q - 32) *
// (scale * sub-scale).
void BlockQ6_K(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* const low = in + 64 * half;
    const uint8_t* const high = in + 128 + 32 * half;
    const uint8_t* const sub = in + 192 + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8_t* const nibbles = low + 32 * (quarter % 2);
      const int shift = 4 * (quarter / 2);
      for (int run = 0; run < 2; ++run) {
        const float run_scale =
            scale * static_cast<float>(static_cast<int8_t>(sub[2 * quarter + run]));
        float* const to = out + 128 * half + 32 * quarter + 16 * run;
        for (int j = 0; j < 16; ++j) {
          const int q = (nibbles[16 * run + j] >> shift & 15) |
                        (high[16 * run + j] >> (2 * quarter) & 3) << 4;
          to[j] = static_cast<float>(q - 32) * run_scale;
        }
      }
    }
  }
}

template <void (*Block)(const uint8_t*, float*)>
void ReadBlocks(TensorType type, const uint8_t* in, int64_t count, float* out) {
  const BlockLayout layout = BlockLayoutOf(type);
  for (int64_t done = 0; done < count; done += layout.elements, in += layout.bytes)
    Block(in, out + done);
}

}  // namespace

void ReadRows(const TensorInfo& tensor, int64_t first_row, int64_t row_count, float* out) {
  SYSONE_CHECK(first_row >= 0 && row_count >= 0 && first_row <= tensor.rows() - row_count,
               "rows [%lld, +%lld) of tensor %s, which has %lld", static_cast<long long>(first_row),
               static_cast<long long>(row_count), tensor.name.c_str(),
               static_cast<long long>(tensor.rows()));
  const BlockLayout layout = BlockLayoutOf(tensor.type);
  const int64_t row_bytes = tensor.cols() / layout.elements * layout.bytes;
  const int64_t count = row_count * tensor.cols();
  const auto* const in =
      reinterpret_cast<const uint8_t*>(tensor.data) + static_cast<size_t>(first_row * row_bytes);
  switch (tensor.type) {
    case TensorType::kF32:
      if (count > 0) std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      return;
    case TensorType::kF16:
      return ReadF16(in, count, out);
    case TensorType::kBF16:
      return ReadBF16(in, count, out);
    case TensorType::kQ4_0:
      return ReadBlocks<BlockQ4_0>(tensor.type, in, count, out);
    case TensorType::kQ4_1:
      return ReadBlocks<BlockQ4_1>(tensor.type, in, count, out);
    case TensorType::kQ5_0:
      return ReadBlocks<BlockQ5_0>(tensor.type, in, count, out);
    case TensorType::kQ5_1:
      return ReadBlocks<BlockQ5_1>(tensor.type, in, count, out);
    case TensorType::kQ8_0:
      return ReadBlocks<BlockQ8_0>(tensor.type, in, count, out);
    case TensorType::kQ4_K:
      return ReadBlocks<BlockQ4_K>(tensor.type, in, count, out);
    case TensorType::kQ5_K:
      return ReadBlocks<BlockQ5_K>(tensor.type, in, count, out);
    case TensorType::kQ6_K:
      return ReadBlocks<BlockQ6_K>(tensor.type, in, count, out);
  }
}

}  // namespace sysone
