// A GGUF file, mapped: its metadata (typed key/value pairs) and its tensor directory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/tensor_index.h"

namespace sysone {

// Immutable after Open; any thread may read. Views point into the mapping and live as long as the file object.
class GgufFile {
 public:
  // kNotFound; kCorrupt naming what is wrong (magic, truncated at byte …, offset outside the file); kUnsupported for
  // another version, an array of arrays, or a tensor type that we do not read (naming the tensor and the type).
  static Result<std::shared_ptr<const GgufFile>> Open(const std::string& path);
  ~GgufFile();

  // nullopt when the key is absent or has another type; integers of every width convert when they fit.
  std::optional<std::string_view> String(std::string_view key) const;
  std::optional<int64_t> Int(std::string_view key) const;
  std::optional<double> Float(std::string_view key) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<std::vector<std::string_view>> Strings(std::string_view key) const;
  std::optional<std::vector<int64_t>> Ints(std::string_view key) const;
  std::optional<std::vector<double>> Floats(std::string_view key) const;

  // Shapes are turned round to row-major [rows, cols] (the file stores the fastest dimension first).
  const std::vector<TensorInfo>& tensors() const;
  const std::string& path() const;
  std::string_view header() const;  // everything before the tensor data
  size_t bytes() const;             // of the whole file

 private:
  struct Impl;
  explicit GgufFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sysone
