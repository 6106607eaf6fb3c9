// A batch as a backend wants it: with as many rows and reads as it keeps passes ready for (Backend::PassRows). Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sysone {

// Reused from pass to pass; its vectors keep their memory.
class PaddedBatch {
 public:
  // `inputs` with `rows` rows and `reads` reads, no fewer than it has. What is added is needed by nobody, as RunPass describes it;
  // what need not grow is passed on as it is. The result is valid until the next call, and as long as what `inputs` views.
  PassInputs Pad(const PassInputs& inputs, int32_t rows, int32_t reads);

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, kv_rows_, read_rows_, read_positions_;
};

}  // namespace sysone
