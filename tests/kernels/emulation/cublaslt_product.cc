// See cublaslt_product.h. The sums of a result go along the depth, one value after the other, so its bits depend on its own row
// and column and on the parts of the depth alone; what runs side by side are results.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulation/cublaslt_product.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace sysone::emulation {
namespace {

constexpr int64_t kPanel = 16;   // rows of d that are summed side by side
constexpr int64_t kColumns = 4;  // likewise columns

// The values of e4m3, by code.
const std::array<float, 256>& E4m3Values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (size_t code = 0; code < all.size(); ++code)
      all[code] = FromE4m3(static_cast<uint8_t>(code));
    return all;
  }();
  return values;
}

// count values of a matrix's memory, `step` apart, to out[0], out[out_step], …
template <class Sum>
void Read(cudaDataType_t type, const void* values, int64_t first, int64_t step, int64_t count,
          Sum* out, int64_t out_step) {
  const auto all = [&](const auto* typed, auto convert) {
    for (int64_t i = 0; i < count; ++i) out[i * out_step] = convert(typed[first + i * step]);
  };
  switch (type) {
    case CUDA_R_32F:
      return all(static_cast<const float*>(values), [](float x) { return static_cast<Sum>(x); });
    case CUDA_R_16BF:
      return all(static_cast<const __nv_bfloat16*>(values),
                 [](__nv_bfloat16 x) { return static_cast<Sum>(static_cast<float>(x)); });
    case CUDA_R_8I:
      return all(static_cast<const int8_t*>(values), [](int8_t x) { return static_cast<Sum>(x); });
    case CUDA_R_8F_E4M3:
      return all(static_cast<const uint8_t*>(values),
                 [&codes = E4m3Values()](uint8_t x) { return static_cast<Sum>(codes[x]); });
    default:
      SYSONE_CHECK(false, "values of type %d", static_cast<int>(type));
  }
}

// sums[kColumns][kPanel] = panel [depth, kPanel] times columns [kColumns][depth] between begin and end.
template <class Sum>
void SumPart(const Sum* __restrict__ panel, const Sum* const (&columns)[kColumns], int64_t begin,
             int64_t end, Sum (&sums)[kColumns][kPanel]) {
  Sum sum[kColumns][kPanel] = {};
  for (int64_t k = begin; k < end; ++k) {
    for (int64_t column = 0; column < kColumns; ++column) {
      const Sum value = columns[column][k];
      for (int64_t i = 0; i < kPanel; ++i) sum[column][i] += panel[k * kPanel + i] * value;
    }
  }
  std::memcpy(sums, sum, sizeof sum);
}

template <class Sum>
void MultiplyAs(const Product& product) {
  const int64_t m = product.m(), n = product.n(), depth = product.k();
  const int64_t padded_n = (n + kColumns - 1) / kColumns * kColumns;
  std::vector<Sum> columns(static_cast<size_t>(padded_n * depth));
  for (int64_t j = 0; j < n; ++j) {
    const int64_t first = product.transpose_b ? j : j * product.b.ld;
    const int64_t step = product.transpose_b ? product.b.ld : 1;
    Read(product.b.type, product.b_values, first, step, depth, columns.data() + j * depth, 1);
  }
  const Sum alpha = static_cast<Sum>(product.alpha), beta = static_cast<Sum>(product.beta);
  const Sum* c = static_cast<const Sum*>(product.c_values);
  Sum* d = static_cast<Sum*>(product.d_values);
  std::vector<Sum> panel(static_cast<size_t>(depth * kPanel));
  for (int64_t first_row = 0; first_row < m; first_row += kPanel) {
    const int64_t rows = std::min(kPanel, m - first_row);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = first_row + i;
      const int64_t first = product.transpose_a ? row * product.a.ld : row;
      const int64_t step = product.transpose_a ? 1 : product.a.ld;
      Read(product.a.type, product.a_values, first, step, depth, panel.data() + i, kPanel);
    }
    for (int64_t first_col = 0; first_col < n; first_col += kColumns) {
      const Sum* side_by_side[kColumns];
      for (int64_t j = 0; j < kColumns; ++j) {
        side_by_side[j] = columns.data() + (first_col + j) * depth;
      }
      Sum sums[kColumns][kPanel];
      for (size_t part = 0; part < product.parts.size(); ++part) {
        const bool last = part + 1 == product.parts.size();
        Sum sums_of_part[kColumns][kPanel];
        SumPart(panel.data(), side_by_side, product.parts[part],
                last ? depth : product.parts[part + 1], sums_of_part);
        for (int64_t j = 0; j < kColumns; ++j) {
          for (int64_t i = 0; i < kPanel; ++i) {
            sums[j][i] = part == 0 ? sums_of_part[j][i] : sums[j][i] + sums_of_part[j][i];
          }
        }
      }
      for (int64_t j = 0; j < std::min(kColumns, n - first_col); ++j) {
        for (int64_t i = 0; i < rows; ++i) {
          const int64_t at = (first_col + j) * product.d.ld + first_row + i;
          Sum value = alpha * sums[j][i];
          // Not c · 0: what is not asked for may be NaN.
          if (beta != Sum{0}) value += beta * c[at];
          if (product.bias) value += static_cast<Sum>(product.bias[first_row + i]);
          d[at] = value;
        }
      }
    }
  }
}

}  // namespace

int64_t BytesOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 1;
  }
}

void Multiply(const Product& product) {
  if (product.d.type == CUDA_R_32I) return MultiplyAs<int32_t>(product);
  MultiplyAs<float>(product);
}

}  // namespace sysone::emulation
