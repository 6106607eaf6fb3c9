// SPDX-License-Identifier: Apache-2.0
#include "worker/pass_runner.h"

#include <algorithm>

namespace sysone {

PassRunner::PassRunner(PassModel& model, KvCache& cache)
    : model_(model),
      cache_(cache),
      hidden_(static_cast<size_t>(model.hidden())),
      kept_(static_cast<size_t>(cache.block_count()) * hidden_) {}

void PassRunner::Run(const Pass& pass, const ScheduledPass& scheduled) {
  FillStates(pass, scheduled);
  logits_.resize(pass.label_ids().size());
  summaries_.resize(static_cast<size_t>(pass.states()));
  if (pass.states() > 0) model_.ReadOut(pass, states_, logits_, summaries_);
}

void PassRunner::FillStates(const Pass& pass, const ScheduledPass& scheduled) {
  const auto row = [this](std::vector<float>& rows, auto index) {
    return rows.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(index) * hidden_);
  };
  const size_t computed = pass.read_rows().size();
  states_.resize(static_cast<size_t>(pass.states()) * hidden_);
  // Kept ones before new ones are kept: a block has room for one.
  for (size_t i = 0; i < pass.stored_blocks().size(); ++i)
    std::copy_n(row(kept_, pass.stored_blocks()[i]), hidden_, row(states_, computed + i));
  if (pass.rows() > 0) model_.Compute(pass, std::span(states_).first(computed * hidden_));
  for (size_t i = 0; i < scheduled.reads.size(); ++i) {
    const auto state = static_cast<size_t>(pass.read_states()[i]);
    if (state >= computed) continue;
    const KvCursor& end = scheduled.reads[i].end;
    std::copy_n(row(states_, state), hidden_, row(kept_, end.block));
    cache_.SetState(end);
  }
}

}  // namespace sysone
