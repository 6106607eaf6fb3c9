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
  states_.resize(static_cast<size_t>(pass.states()) * hidden_);
  logits_.resize(pass.label_ids().size());
  summaries_.resize(static_cast<size_t>(pass.states()));
  // Kept ones before new ones are kept: a block has room for one.
  TakeStored(pass);
  model_.Run(pass, states_, logits_, summaries_);
  KeepComputed(pass, scheduled);
}

std::vector<float>::iterator PassRunner::Row(std::vector<float>& rows, size_t index) const {
  return rows.begin() + static_cast<ptrdiff_t>(index * hidden_);
}

void PassRunner::TakeStored(const Pass& pass) {
  const size_t computed = pass.read_rows().size();
  for (size_t i = 0; i < pass.stored_blocks().size(); ++i)
    std::copy_n(Row(kept_, static_cast<size_t>(pass.stored_blocks()[i])), hidden_,
                Row(states_, computed + i));
}

void PassRunner::KeepComputed(const Pass& pass, const ScheduledPass& scheduled) {
  const size_t computed = pass.read_rows().size();
  for (size_t i = 0; i < scheduled.reads.size(); ++i) {
    const auto state = static_cast<size_t>(pass.read_states()[i]);
    if (state >= computed) continue;
    const KvCursor& end = scheduled.reads[i].end;
    std::copy_n(Row(states_, state), hidden_, Row(kept_, static_cast<size_t>(end.block)));
    cache_.SetState(end);
  }
}

}  // namespace sysone
