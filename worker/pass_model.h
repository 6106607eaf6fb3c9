// What the engine needs of a model: hidden states behind prompts, and logits of labels at them. Both in one step, so that a device
// goes from the prompt to the logits without the host; a state that was kept is read again without its prompt's rows. Decoder is
// the real one, tests and benches have others.
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
  // Runs all layers for the rows of the pass, and leaves their keys and values at the pass's kv_rows; then reads out states.
  // A pass has rows, or stored states, or both.
  // `states` [pass.states(), hidden]: what goes into the final norm. The first ones, those of pass.read_rows(), are filled; the
  // stored ones behind them are given. label_logits: filled, one a pass.label_ids(). summaries: filled if pass.summarize_head(),
  // one a state.
  virtual void Run(const Pass& pass, std::span<float> states, std::span<float> label_logits,
                   std::span<HeadSummary> summaries) = 0;
};

}  // namespace sysone
