// Where the programs that run real models find them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

namespace sysone {

// The folder of the model cache, by the environment variables that CachePlaces in model/model_path.h names.
inline std::string ModelsFolder() {
  const auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = env("SYSONE_CACHE"); !cache.empty()) return cache + "/models";
  if (const std::string cache = env("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/sysone/models";
  return env("HOME") + "/.cache/sysone/models";
}

}  // namespace sysone
