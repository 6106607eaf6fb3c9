// SPDX-License-Identifier: Apache-2.0
#include "model/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "model/safetensors.h"

namespace sysone {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> GgufFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".gguf" && PathExists(entry->path().string()))
      names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool PathExists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Result<std::string> FindCheckpoint(const std::string& folder) {
  const auto shards = ListSafetensors(folder);
  if (!shards.ok() && shards.status().code() != Code::kNotFound) return shards.status();
  if (!shards.ok()) {
    const std::vector<std::string> files = GgufFiles(folder);
    if (files.size() == 1) return folder + "/" + files[0];
    if (files.empty())
      return Error(Code::kNotFound,
                   "%s: no model.safetensors, no model.safetensors.index.json and no .gguf file",
                   folder.c_str());
    std::string list;
    for (const std::string& file : files) list += "\n  " + folder + "/" + file;
    return Error(Code::kInvalidArgument, "%s has several GGUF files; name the one to serve:%s",
                 folder.c_str(), list.c_str());
  }
  std::vector<std::string> needed = *shards;
  needed.push_back(folder + "/config.json");
  needed.push_back(folder + "/tokenizer.json");
  for (const std::string& path : needed)
    if (!PathExists(path)) return Error(Code::kNotFound, "%s is missing", path.c_str());
  return folder;
}

}  // namespace sysone
