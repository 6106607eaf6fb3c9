// What happens between loading and the first client where a backend chooses algorithms and keeps passes ready: choices are taken
// from a file of an earlier start or made now, every rank gets rank 0's, and each usual size of a pass is run once, so that no
// client waits for it. `sysone preload` does nothing but this.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "worker/comm/collective.h"
#include "worker/decoder.h"
#include "worker/tuning_cache.h"

namespace sysone {

// Rows and reads of a pass.
struct PassCount {
  int32_t rows = 0;
  int32_t reads = 0;
  bool operator==(const PassCount&) const = default;
};

// The sizes that `backend` pads passes to, small ones first, as far as limits and kv_rows allow them; none where it makes no
// choices. Not those with a read for every few rows: they are rare, and made when they come.
std::vector<PassCount> UsualPasses(const Backend& backend, const DecoderLimits& limits,
                                   int32_t kv_rows);

struct PreloadOptions {
  std::string tuning_dir;  // of the cache's files; "": neither read nor written
  TuningFacts subject;     // the model and the rank's part of it
  bool tune = false;       // try algorithms for all shapes that were not tried yet
  bool write = false;      // the file, also when nothing was tried
  int32_t kv_rows = 0;     // of the decoder's stores
};

// All ranks call it with the same options, before the first pass; one thread. A file that is of no use, or cannot be written,
// is a line in the log. What was done, for the log: "91 usual passes run in 1.9 s, 64 products, 64 of them tuned"; "" where the
// backend has nothing of the kind.
std::string Preload(Backend& backend, Decoder& decoder, Collective& ranks,
                    const PreloadOptions& options);

}  // namespace sysone
