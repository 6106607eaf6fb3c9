// The inputs of a pass on the device: PassInputs in the pass block, runs and spans as the tables that attention works with. Sizes
// are rounded up to a few, so that few passes have to be recorded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/attention_tables.h"
#include "kernels/cuda/pass_block.h"
#include "kernels/cuda/recorded_passes.h"

namespace sysone {

// Of one backend, used by its thread.
class DevicePassInputs {
 public:
  explicit DevicePassInputs(Stream& stream);

  // Takes the inputs of the next pass, after the one before has taken its own.
  void Put(const PassInputs& inputs);
  // Of what was put in last.
  const PassSize& size() const { return size_; }
  // Puts their copy into the stream.
  void Send() { block_.Send(block_.bytes()); }
  void MarkSent() { block_.MarkSent(); }

  // An input of the pass on the device; null if it is none.
  template <class T>
  const T* Find(std::span<const T> values) const {
    return block_.Find(values);
  }
  // The table of a plan of the pass.
  struct Table {
    const int32_t* words = nullptr;  // null if it is none
    AttentionLimits limits;
  };
  Table FindTable(const PassPlan& plan) const;

  uint64_t generation() const { return block_.generation(); }

 private:
  struct Planned {
    PassPlan plan;
    AttentionLimits limits;
    size_t offset = 0;
  };
  Planned PutPlan(const PassPlan& plan, const AttentionLimits& limits);

  PassBlock block_;
  AttentionTables tables_;  // kept for their memory
  PassSize size_;
  Planned all_, reads_;
};

}  // namespace sysone
