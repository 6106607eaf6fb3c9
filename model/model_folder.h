// What a folder with a checkpoint in it is to be opened as; shared by the resolving of names and the opening of files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"

namespace sysone {

// The folder itself when it is a Hugging Face checkpoint, complete as far as files go; else its one GGUF file.
// kNotFound names what is missing; kInvalidArgument lists the GGUF files when there are several.
Result<std::string> FindCheckpoint(const std::string& folder);

// Both follow links, and a dangling one does not exist.
bool IsFolder(const std::string& path);
bool PathExists(const std::string& path);

}  // namespace sysone
