// Safetensors: one JSON header and the tensors behind it, in one file or in shards that an index lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/mapped_file.h"
#include "model/tensor_index.h"

namespace sysone {

struct SafetensorsFile {
  std::shared_ptr<const MappedFile> file;  // the tensors' data point into it
  std::vector<TensorInfo> tensors;         // in the order of the header
  std::string_view header;                 // length and JSON
};

// kNotFound; kCorrupt for a header or offsets that contradict the file; kUnsupported naming a tensor and its dtype when it
// is none of F32, F16, BF16.
Result<SafetensorsFile> OpenSafetensors(const std::string& path);

// The weight files of a Hugging Face folder, as paths, whether they exist or not: model.safetensors, or the shards that
// model.safetensors.index.json lists (sorted). kNotFound when the folder has neither.
Result<std::vector<std::string>> ListSafetensors(const std::string& folder);

// All of them opened. With an index, every tensor that it places is checked to be in its shard.
Result<std::vector<SafetensorsFile>> OpenSafetensorsFolder(const std::string& folder);

}  // namespace sysone
