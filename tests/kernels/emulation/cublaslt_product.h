// The matrix product itself, of the emulated cuBLASLt: plain loops over column-major matrices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

namespace sysone::emulation {

struct Matrix {  // as stored: [rows, cols], one column right behind the other but for `ld`
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, cols = 0, ld = 0;
};

struct Product {
  Matrix a, b, d;  // d [m, n] = op(a) [m, k] · op(b) [k, n]
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
  // Where the parts of the depth begin that are summed apart from each other, then added in order; the first is 0.
  std::vector<int64_t> parts;
  const void *a_values = nullptr, *b_values = nullptr, *c_values = nullptr;  // c: laid out as d
  const float* bias = nullptr;                                               // [m], or null
  void* d_values = nullptr;                                                  // may be c_values

  int64_t m() const { return d.rows; }
  int64_t n() const { return d.cols; }
  int64_t k() const { return transpose_a ? a.rows : a.cols; }
};

int64_t BytesOf(cudaDataType_t type);
// Of one with types that the device multiplies.
void Multiply(const Product& product);

}  // namespace sysone::emulation
