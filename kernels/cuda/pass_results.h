// What a pass gives on its way to the host: page-locked memory that the pass's last kernels and copies write to, as long as it runs,
// and from which the caller's spans are filled when it is done. Its layout depends on the pass's size alone, because a recorded
// pass has its addresses in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/stream.h"

namespace sysone {

// Of one backend, used by its thread.
class DevicePassResults {
 public:
  explicit DevicePassResults(Stream& stream);

  // Makes room for the results of the next pass. Those of the one before are gone.
  void Put(const PassResults& results);
  // Where the device writes what is wanted in `values`; null unless that begins one of the results.
  float* Find(std::span<const float> values) const;
  // Once the pass is done: fills the caller's spans, if there are any. Waits for the stream only then.
  void Fetch();

  // Another number whenever the memory moved.
  uint64_t generation() const { return generation_; }

 private:
  float* states() const { return host_.data() + results_.label_logits.size(); }

  Stream& stream_;
  PinnedArray<float> host_;  // label logits │ states
  PassResults results_;
  uint64_t generation_ = 0;
};

}  // namespace sysone
