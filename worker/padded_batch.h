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
  // `inputs` with `rows` rows, `reads` reads and `labels` labels, no fewer than it has. What is added is needed by nobody, as
  // PassRows describes it; what need not grow is passed on as it is. The result is valid until the next call, and as long as what
  // `inputs` views.
  PassInputs Pad(const PassInputs& inputs, int32_t rows, int32_t reads, int32_t labels);

  // Room for results of that many labels and floats of states: `results` itself where that is as large, which is then filled by
  // the pass; elsewhere Return copies what is wanted of it. Valid until the next call.
  PassResults Room(const PassResults& results, size_t labels, size_t state_floats);
  void Return(const PassResults& room, const PassResults& results) const;

 private:
  std::vector<TokenId> tokens_, label_ids_;
  std::vector<int32_t> positions_, kv_rows_, read_rows_, read_positions_, label_reads_;
  std::vector<float> label_logits_, states_;
};

}  // namespace sysone
