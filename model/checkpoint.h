// An opened checkpoint before its parts go to the processes; inside model/ only.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model_config.h"
#include "model/safetensors.h"

namespace sysone {

class GgufFile;

// Either `gguf`, or `folder` and `shards`.
struct Checkpoint {
  ModelConfig config;
  std::shared_ptr<const GgufFile> gguf;
  std::string folder;
  std::vector<SafetensorsFile> shards;
  std::string fingerprint;
};

// As OpenModelWeights says of paths and errors; the tensors are not yet checked against the config.
Result<Checkpoint> OpenCheckpoint(const std::string& path);

}  // namespace sysone
