// How weights become numbers of the device: float32 rows of the file into rows of a CudaWeight. Host code without CUDA, run by
// several loading threads at once. (The encodings of activations are kernels: kernels/cuda/row_kernels.h.)
//
//   int8   w ≈ q · scale, scale = largest |w| of the output column / 127, q = round(w / scale)
//   fp8    w ≈ e4m3 · scale, scale = largest |w| of the output column / 448 (the largest e4m3)
//
// A column that has a value which is no number, or an infinity, gets the scale NaN, so that its results are none either
// (as in kernels/int8.h); one without a value of 2^-100 or more gets the scale 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/objects.h"

namespace sysone {

// Writes the row of one output column, `stride` values of which those behind row.size() are zeros, and gives its scale (1 where
// the encoding has none). float32 and bfloat16 keep NaN and infinities as they are.
float EncodeWeightRow(Encoding encoding, std::span<const float> row, int64_t stride,
                      std::byte* out);

// e4m3: sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinity, NaN is 0x7F and 0xFF; ±448 is the largest. Rounds to
// nearest, ties to even; what is above 448 becomes 448.
uint8_t ToFp8(float value);
// Exact.
float FromFp8(uint8_t code);

}  // namespace sysone
