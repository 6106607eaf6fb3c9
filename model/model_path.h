// From what a user types (`sysone serve MODEL`) to a file or folder on disk, without touching the network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace sysone {

struct ModelPath {
  std::string path;         // file or folder to open; empty: it must be fetched first
  std::string served_name;  // what clients call it: the name, the hub id, or the file's stem
};

// Environment that decides where caches are; main() fills it from HF_HOME, HF_HUB_CACHE, XDG_CACHE_HOME, SYSONE_CACHE, HOME.
struct CachePlaces {
  std::string sysone_models;  // ${SYSONE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/sysone}/models
  std::string hub;            // ${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}/hub}
};

// Order: an existing path; a name of the catalogue (model/catalogue.h); an id "org/name" or "org/name@revision" in the hub
// cache layout (models--org--name/refs/main → snapshots/<commit>). A catalogue's file that is absent or of another size
// gives an empty path; a hub snapshot that lacks a file counts as not there. kNotFound says what was looked for and where;
// kInvalidArgument lists the GGUF files of a folder that has several.
Result<ModelPath> ResolveModel(const std::string& model, const CachePlaces& places);

}  // namespace sysone
