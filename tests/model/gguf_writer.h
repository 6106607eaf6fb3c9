// Writes small GGUF files for tests, right or deliberately wrong.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace sysone {

enum GgufValueType : uint32_t {
  kGgufU8 = 0,
  kGgufI8 = 1,
  kGgufU16 = 2,
  kGgufI16 = 3,
  kGgufU32 = 4,
  kGgufI32 = 5,
  kGgufF32 = 6,
  kGgufBool = 7,
  kGgufString = 8,
  kGgufArray = 9,
  kGgufU64 = 10,
  kGgufI64 = 11,
  kGgufF64 = 12,
};

class GgufWriter {
 public:
  template <class T>
  GgufWriter& Scalar(std::string_view key, uint32_t type, T value) {
    BeginValue(key, type);
    Append(values_, value);
    return *this;
  }
  GgufWriter& U32(std::string_view key, uint32_t value) { return Scalar(key, kGgufU32, value); }
  GgufWriter& F32(std::string_view key, float value) { return Scalar(key, kGgufF32, value); }
  GgufWriter& String(std::string_view key, std::string_view value) {
    BeginValue(key, kGgufString);
    AppendText(values_, value);
    return *this;
  }
  template <class T>
  GgufWriter& Array(std::string_view key, uint32_t type, const std::vector<T>& items) {
    BeginArray(key, type, items.size());
    for (const T& item : items) Append(values_, item);
    return *this;
  }
  GgufWriter& Strings(std::string_view key, const std::vector<std::string>& items) {
    BeginArray(key, kGgufString, items.size());
    for (const std::string& item : items) AppendText(values_, item);
    return *this;
  }
  GgufWriter& BeginArray(std::string_view key, uint32_t type, uint64_t count) {
    BeginValue(key, kGgufArray);
    Append(values_, type);
    Append(values_, count);
    return *this;
  }

  // `shape` as the file has it, fastest dimension first; the data follows those of the tensors
  // before.
  GgufWriter& Tensor(std::string_view name, std::vector<uint64_t> shape, uint32_t type,
                     std::string_view data) {
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    return TensorAt(name, shape, type, data_.size()).Data(data);
  }
  GgufWriter& TensorAt(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                       uint64_t offset) {
    ++tensors_;
    AppendText(directory_, name);
    Append(directory_, static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) Append(directory_, size);
    Append(directory_, type);
    Append(directory_, offset);
    return *this;
  }
  GgufWriter& Data(std::string_view data) {
    data_ += data;
    return *this;
  }
  GgufWriter& Alignment(uint32_t alignment) {
    alignment_ = alignment;
    return U32("general.alignment", alignment);
  }

  std::string Bytes(uint32_t version = 3) const {
    std::string out = "GGUF";
    Append(out, version);
    Append(out, tensors_);
    Append(out, count_);
    out += values_ + directory_;
    if (!data_.empty()) out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_);
    return out + data_;
  }

 private:
  template <class T>
  static void Append(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  }
  static void AppendText(std::string& out, std::string_view text) {
    Append(out, static_cast<uint64_t>(text.size()));
    out += text;
  }
  void BeginValue(std::string_view key, uint32_t type) {
    ++count_;
    AppendText(values_, key);
    Append(values_, type);
  }

  std::string values_, directory_, data_;
  uint64_t count_ = 0, tensors_ = 0;
  size_t alignment_ = 32;
};

}  // namespace sysone
