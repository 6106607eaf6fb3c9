// A whole file mapped read-only: both weight formats point into one instead of copying gigabytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"

namespace sysone {

// Immutable; any thread may read. The file must not shrink while it is mapped (reading past its end
// would raise SIGBUS).
class MappedFile {
 public:
  // kNotFound when the file cannot be opened, kCorrupt when it is no regular file or cannot be
  // mapped.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }  // nullptr when the file is empty
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

// The whole text of a (small) file; kNotFound naming it when it cannot be read.
Result<std::string> ReadWholeFile(const std::string& path);

}  // namespace sysone
