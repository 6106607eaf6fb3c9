// The worker's part of opening a model, and what both parts share: which files, and their fingerprint.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/log.h"
#include "model/checkpoint.h"
#include "model/gguf.h"
#include "model/mapped_file.h"
#include "model/model_files.h"
#include "model/model_folder.h"
#include "model/safetensors.h"

namespace sysone {
namespace {

// FNV-1a, 64 bits: enough to tell checkpoints apart, not a defence against forgery.
class Fingerprint {
 public:
  void Add(std::string_view bytes) {
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  void AddSize(size_t bytes) { Add(std::to_string(bytes) + ";"); }
  std::string Text() const { return Format("%016llx", static_cast<unsigned long long>(hash_)); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

Result<Checkpoint> OpenGguf(const std::string& path) {
  Checkpoint checkpoint;
  SYSONE_ASSIGN_OR_RETURN(checkpoint.gguf, GgufFile::Open(path));
  SYSONE_ASSIGN_OR_RETURN(checkpoint.config, ReadGgufConfig(*checkpoint.gguf));
  Fingerprint fingerprint;
  fingerprint.Add(checkpoint.gguf->header());
  fingerprint.AddSize(checkpoint.gguf->bytes());
  checkpoint.fingerprint = fingerprint.Text();
  return checkpoint;
}

Result<Checkpoint> OpenHfFolder(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  SYSONE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(folder + "/config.json"));
  auto config = ReadHfConfig(text);
  if (!config.ok()) return config.status().WithContext(folder + "/config.json");
  checkpoint.config = *std::move(config);
  SYSONE_ASSIGN_OR_RETURN(checkpoint.shards, OpenSafetensorsFolder(folder));
  Fingerprint fingerprint;
  fingerprint.Add(text);
  for (const SafetensorsFile& shard : checkpoint.shards) {
    fingerprint.Add(shard.header);
    fingerprint.AddSize(shard.file->size());
  }
  checkpoint.fingerprint = fingerprint.Text();
  return checkpoint;
}

}  // namespace

Result<Checkpoint> OpenCheckpoint(const std::string& path) {
  if (!PathExists(path)) return Error(Code::kNotFound, "%s: no such file or folder", path.c_str());
  if (!IsFolder(path)) return OpenGguf(path);
  SYSONE_ASSIGN_OR_RETURN(const std::string found, FindCheckpoint(path));
  return IsFolder(found) ? OpenHfFolder(found) : OpenGguf(found);
}

Result<ModelWeights> OpenModelWeights(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenCheckpoint(path));
  std::vector<TensorInfo> tensors;
  std::vector<std::shared_ptr<const void>> keep_alive;
  if (checkpoint.gguf != nullptr) {
    tensors = checkpoint.gguf->tensors();
    keep_alive.push_back(checkpoint.gguf);
  }
  for (SafetensorsFile& shard : checkpoint.shards) {
    tensors.insert(tensors.end(), shard.tensors.begin(), shard.tensors.end());
    keep_alive.push_back(shard.file);
  }
  ModelWeights weights{std::move(checkpoint.config),
                       TensorIndex(std::move(tensors), std::move(keep_alive)),
                       std::move(checkpoint.fingerprint)};
  SYSONE_RETURN_IF_ERROR(ValidateTensors(weights.config, weights.tensors).WithContext(path));
  return weights;
}

}  // namespace sysone
