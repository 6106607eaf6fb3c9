// What can be known to fail before anything is started: a missing or truncated model, a family that is not supported, too
// little memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/serve_options.h"
#include "base/status.h"

namespace sysone {

struct ModelFacts {
  int64_t weight_bytes =
      0;  // in memory for the dtype; for auto, the least that it may become: int8 (embedding and head in bfloat16)
  std::string fingerprint;  // model/model_files.h
};

// Opens the model's files as a worker would.
Result<ModelFacts> InspectModel(const std::string& model_path, const std::string& dtype);

// kOutOfMemory, saying what is needed, when `available_bytes` (0: not known) does not hold the weights, keys and values of every
// group.
// `local_ranks`: as many ranks of each group are on this machine.
Status CheckMemory(int64_t weight_bytes, const ServeOptions& options, int local_ranks,
                   int64_t available_bytes);

}  // namespace sysone
