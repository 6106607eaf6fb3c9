// A file that keeps what was found out about one model on one device, so that later starts need not find it out again: the
// backend's choices of algorithms (Backend::ExportChoices), which are mere bytes here.
//
//   sysone tuning cache 1
//   checksum 00c9f6e2d2a5b3d1         of everything below
//   model: 5f0c…                      what it is for: all of it must be the same at the reader's
//   CUDA driver: 13.0
//
//   (the bytes)
//
// A file that is not to be used is no failure of a start: the reader goes on without and says in one line of the log why.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sysone {

// ("CUDA driver", "13.0"). No line breaks.
using TuningFacts = std::vector<std::pair<std::string, std::string>>;

// One file of the cache.
class TuningCache {
 public:
  // `dir` is made when it is needed. `subject` names the file: what differs there is kept side by side, for example models.
  // What differs in `versions` makes the file of no use, and the next Write replaces it.
  TuningCache(const std::string& dir, const TuningFacts& subject, const TuningFacts& versions);

  const std::string& path() const { return path_; }

  // kNotFound: there is no file. kCorrupt: it is damaged or cut short, or something else. kUnsupported: it is of another
  // subject or version, and the message says of which. kUnavailable: it cannot be read.
  Result<std::vector<std::byte>> Read() const;
  // Replaces the file at once: a reader finds the old one or the new one, also when the machine stops meanwhile.
  // kUnavailable: that was not possible, and the old one is as it was.
  Status Write(std::span<const std::byte> bytes) const;

 private:
  std::string dir_, path_, head_;
};

}  // namespace sysone
