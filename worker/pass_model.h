// What the engine needs of a model: hidden states behind prompts, and logits of labels at them. Two
// steps, so that a state that was kept can be read again without a pass. Decoder is the real one,
// tests and benches have others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "worker/pass.h"

namespace sysone {

class PassModel {
 public:
  virtual ~PassModel() = default;
  // Floats of a state.
  virtual int32_t hidden() const = 0;
  // Runs all layers for the rows of the pass, at least one, and leaves their keys and values at
  // the pass's kv_rows. Fills `states` [pass.read_rows(), hidden]: what goes into the final norm.
  virtual void Compute(const Pass& pass, std::span<float> states) = 0;
  // From `states` [pass.states(), hidden] fills label_logits, one a pass.label_ids(), and, if
  // pass.summarize_head(), one summary a state.
  virtual void ReadOut(const Pass& pass, std::span<const float> states,
                       std::span<float> label_logits, std::span<HeadSummary> summaries) = 0;
};

}  // namespace sysone
