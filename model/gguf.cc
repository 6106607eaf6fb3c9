// GGUF: "GGUF", version, counts, key/value pairs, tensor directory, padding, tensor data;
// little-endian throughout. Every number in the file is untrusted: lengths are compared with what
// is left before they are used, and nothing is allocated by a count alone.
// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "model/ggml_types.h"
#include "model/mapped_file.h"

namespace sysone {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are read in place");

enum ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kFloat64 = 12,
};

// Bytes of a value of fixed size; 0 for strings, arrays and unknown types.
size_t FixedSize(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kFloat32:
      return 4;
    case kU64:
    case kI64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

// A value where it lies in the file. A scalar is an array of one; a string's count is its bytes.
struct Value {
  uint32_t type = 0;  // of the elements
  bool is_array = false;
  uint64_t count = 0;
  const std::byte* data = nullptr;  // of an array of strings: its first length
};

template <class T>
T Load(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

std::optional<int64_t> IntAt(const Value& value, uint64_t index) {
  const std::byte* const at = value.data + index * FixedSize(value.type);
  switch (value.type) {
    case kU8:
      return Load<uint8_t>(at);
    case kI8:
      return Load<int8_t>(at);
    case kU16:
      return Load<uint16_t>(at);
    case kI16:
      return Load<int16_t>(at);
    case kU32:
      return Load<uint32_t>(at);
    case kI32:
      return Load<int32_t>(at);
    case kI64:
      return Load<int64_t>(at);
    case kU64: {
      const auto wide = Load<uint64_t>(at);
      if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(wide);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> FloatAt(const Value& value, uint64_t index) {
  const std::byte* const at = value.data + index * FixedSize(value.type);
  if (value.type == kFloat32) return Load<float>(at);
  if (value.type == kFloat64) return Load<double>(at);
  if (const auto integer = IntAt(value, index)) return static_cast<double>(*integer);
  return std::nullopt;
}

// Reads forward through the mapping and remembers where, so that an error can say it.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : data_(file.data()), size_(file.size()) {}

  size_t position() const { return position_; }
  size_t left() const { return size_ - position_; }

  Result<const std::byte*> Take(uint64_t bytes, const char* what) {
    if (bytes > left())
      return Error(Code::kCorrupt, "ends inside %s (at byte %zu, %llu bytes wanted, %zu left)",
                   what, position_, static_cast<unsigned long long>(bytes), left());
    const std::byte* const at = data_ + position_;
    position_ += static_cast<size_t>(bytes);
    return at;
  }

  template <class T>
  Result<T> Number(const char* what) {
    SYSONE_ASSIGN_OR_RETURN(const std::byte* const at, Take(sizeof(T), what));
    return Load<T>(at);
  }

  Result<std::string_view> Text(const char* what) {
    SYSONE_ASSIGN_OR_RETURN(const auto length, Number<uint64_t>(what));
    SYSONE_ASSIGN_OR_RETURN(const std::byte* const at, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(at), static_cast<size_t>(length));
  }

 private:
  const std::byte* data_;
  size_t size_;
  size_t position_ = 0;
};

Result<Value> ReadValue(Cursor& cursor, const std::string& key) {
  const std::string what = "the value of \"" + key + "\"";
  Value value;
  SYSONE_ASSIGN_OR_RETURN(value.type, cursor.Number<uint32_t>(what.c_str()));
  value.count = 1;
  if (value.type == kArray) {
    value.is_array = true;
    SYSONE_ASSIGN_OR_RETURN(value.type, cursor.Number<uint32_t>(what.c_str()));
    SYSONE_ASSIGN_OR_RETURN(value.count, cursor.Number<uint64_t>(what.c_str()));
    if (value.type == kArray)
      return Error(Code::kUnsupported, "%s is an array of arrays", what.c_str());
  }
  if (value.type == kString) {
    if (!value.is_array) {
      SYSONE_ASSIGN_OR_RETURN(const auto text, cursor.Text(what.c_str()));
      value.count = text.size();
      value.data = reinterpret_cast<const std::byte*>(text.data());
      return value;
    }
    SYSONE_ASSIGN_OR_RETURN(value.data, cursor.Take(0, what.c_str()));
    for (uint64_t i = 0; i < value.count; ++i)
      SYSONE_RETURN_IF_ERROR(cursor.Text(what.c_str()).status());
    return value;
  }
  const size_t size = FixedSize(value.type);
  if (size == 0)
    return Error(Code::kCorrupt, "%s has the unknown type %u (before byte %zu)", what.c_str(),
                 value.type, cursor.position());
  if (value.count > cursor.left() / size)
    return Error(Code::kCorrupt, "ends inside %s (at byte %zu, %llu elements wanted)", what.c_str(),
                 cursor.position(), static_cast<unsigned long long>(value.count));
  SYSONE_ASSIGN_OR_RETURN(value.data, cursor.Take(value.count * size, what.c_str()));
  return value;
}

struct DirectoryEntry {
  TensorInfo info;
  uint64_t offset = 0;  // from the start of the tensor data
};

Result<DirectoryEntry> ReadDirectoryEntry(Cursor& cursor) {
  constexpr uint32_t kMostDimensions = 4;  // of the format
  DirectoryEntry entry;
  SYSONE_ASSIGN_OR_RETURN(const auto name, cursor.Text("a tensor's name"));
  entry.info.name = std::string(name);
  const char* const label = entry.info.name.c_str();
  SYSONE_ASSIGN_OR_RETURN(const auto dimensions, cursor.Number<uint32_t>("a tensor's shape"));
  if (dimensions > kMostDimensions)
    return Error(Code::kCorrupt, "tensor \"%s\" has %u dimensions", label, dimensions);
  entry.info.shape.resize(dimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {  // the file's order is fastest first
    SYSONE_ASSIGN_OR_RETURN(const auto size, cursor.Number<uint64_t>("a tensor's shape"));
    entry.info.shape[dimensions - 1 - i] =
        size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())
            ? -1
            : static_cast<int64_t>(size);
  }
  SYSONE_ASSIGN_OR_RETURN(const auto type, cursor.Number<uint32_t>("a tensor's type"));
  SYSONE_ASSIGN_OR_RETURN(entry.offset, cursor.Number<uint64_t>("a tensor's offset"));
  const auto known = TensorTypeOfGgml(type);
  if (!known)
    return Error(Code::kUnsupported,
                 "tensor \"%s\" has type %s; supported: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K "
                 "Q5_K Q6_K",
                 label, GgmlTypeName(type).c_str());
  entry.info.type = *known;
  const auto bytes = TensorBytes(*known, entry.info.shape);
  if (!bytes)
    return Error(Code::kCorrupt, "tensor \"%s\" of type %s has the impossible shape %s", label,
                 TensorTypeName(*known), ShapeText(entry.info.shape).c_str());
  entry.info.bytes = *bytes;
  return entry;
}

}  // namespace

struct GgufFile::Impl {
  std::shared_ptr<const MappedFile> file;
  std::unordered_map<std::string_view, Value> values;
  std::vector<TensorInfo> tensors;
  size_t header_bytes = 0;

  Status Parse();
  Status ReadTensors(Cursor& cursor, uint64_t count);
  const Value* Find(std::string_view key, bool is_array) const {
    const auto found = values.find(key);
    return found != values.end() && found->second.is_array == is_array ? &found->second : nullptr;
  }
};

Status GgufFile::Impl::Parse() {
  Cursor cursor(*file);
  SYSONE_ASSIGN_OR_RETURN(const std::byte* const magic, cursor.Take(4, "the magic number"));
  if (std::memcmp(magic, "GGUF", 4) != 0)
    return Error(Code::kCorrupt, "not a GGUF file: it does not begin with \"GGUF\"");
  SYSONE_ASSIGN_OR_RETURN(const auto version, cursor.Number<uint32_t>("the version"));
  if ((version & 0xffff) == 0 && version != 0)
    return Error(Code::kUnsupported, "big-endian GGUF; convert it to little-endian");
  if (version != 2 && version != 3)
    return Error(Code::kUnsupported, "GGUF version %u; supported: 2 and 3", version);
  SYSONE_ASSIGN_OR_RETURN(const auto tensor_count, cursor.Number<uint64_t>("the counts"));
  SYSONE_ASSIGN_OR_RETURN(const auto value_count, cursor.Number<uint64_t>("the counts"));
  for (uint64_t i = 0; i < value_count; ++i) {
    SYSONE_ASSIGN_OR_RETURN(const auto key, cursor.Text("a metadata key"));
    SYSONE_ASSIGN_OR_RETURN(const Value value, ReadValue(cursor, std::string(key)));
    if (!values.emplace(key, value).second)
      return Error(Code::kCorrupt, "metadata key \"%s\" occurs twice", std::string(key).c_str());
  }
  return ReadTensors(cursor, tensor_count);
}

Status GgufFile::Impl::ReadTensors(Cursor& cursor, uint64_t count) {
  std::vector<uint64_t> offsets;
  std::unordered_map<std::string, size_t> seen;
  for (uint64_t i = 0; i < count; ++i) {
    SYSONE_ASSIGN_OR_RETURN(DirectoryEntry entry, ReadDirectoryEntry(cursor));
    if (!seen.emplace(entry.info.name, tensors.size()).second)
      return Error(Code::kCorrupt, "tensor \"%s\" occurs twice", entry.info.name.c_str());
    offsets.push_back(entry.offset);
    tensors.push_back(std::move(entry.info));
  }
  header_bytes = cursor.position();

  uint64_t alignment = 32;  // the format's default
  if (const auto found = values.find("general.alignment"); found != values.end()) {
    const auto stated = found->second.is_array ? std::nullopt : IntAt(found->second, 0);
    if (!stated || *stated < 1 || *stated > 1 << 20 || (*stated & (*stated - 1)) != 0)
      return Error(Code::kCorrupt, "general.alignment is no power of two up to 1048576");
    alignment = static_cast<uint64_t>(*stated);
  }
  const uint64_t data_start = (header_bytes + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorInfo& tensor = tensors[i];
    const uint64_t offset = offsets[i];
    if (offset % alignment != 0)
      return Error(Code::kCorrupt, "tensor \"%s\": offset %llu is not aligned to %llu",
                   tensor.name.c_str(), static_cast<unsigned long long>(offset),
                   static_cast<unsigned long long>(alignment));
    if (data_start > file->size() || offset > file->size() - data_start ||
        tensor.bytes > file->size() - data_start - offset)
      return Error(Code::kCorrupt,
                   "tensor \"%s\" lies outside the file (%llu + %llu + %zu bytes of %zu); is it "
                   "truncated?",
                   tensor.name.c_str(), static_cast<unsigned long long>(data_start),
                   static_cast<unsigned long long>(offset), tensor.bytes, file->size());
    tensor.data = file->data() + data_start + offset;
  }
  return Status();
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  SYSONE_ASSIGN_OR_RETURN(impl->file, MappedFile::Open(path));
  SYSONE_RETURN_IF_ERROR(impl->Parse().WithContext(path));
  return std::shared_ptr<const GgufFile>(new GgufFile(std::move(impl)));
}

std::optional<std::string_view> GgufFile::String(std::string_view key) const {
  const Value* const value = impl_->Find(key, false);
  if (value == nullptr || value->type != kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(value->data),
                          static_cast<size_t>(value->count));
}

std::optional<int64_t> GgufFile::Int(std::string_view key) const {
  const Value* const value = impl_->Find(key, false);
  return value == nullptr ? std::nullopt : IntAt(*value, 0);
}

std::optional<double> GgufFile::Float(std::string_view key) const {
  const Value* const value = impl_->Find(key, false);
  return value == nullptr ? std::nullopt : FloatAt(*value, 0);
}

std::optional<bool> GgufFile::Bool(std::string_view key) const {
  const Value* const value = impl_->Find(key, false);
  if (value == nullptr || value->type != kBool) return std::nullopt;
  return Load<uint8_t>(value->data) != 0;
}

std::optional<std::vector<std::string_view>> GgufFile::Strings(std::string_view key) const {
  const Value* const value = impl_->Find(key, true);
  if (value == nullptr || value->type != kString) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(static_cast<size_t>(value->count));  // bounded: Open walked all of them
  const std::byte* at = value->data;
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = static_cast<size_t>(Load<uint64_t>(at));
    strings.emplace_back(reinterpret_cast<const char*>(at + sizeof(uint64_t)), length);
    at += sizeof(uint64_t) + length;
  }
  return strings;
}

std::optional<std::vector<int64_t>> GgufFile::Ints(std::string_view key) const {
  const Value* const value = impl_->Find(key, true);
  if (value == nullptr) return std::nullopt;
  std::vector<int64_t> integers;
  integers.reserve(value->type == kString ? 0 : static_cast<size_t>(value->count));
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer = IntAt(*value, i);
    if (!integer) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<double>> GgufFile::Floats(std::string_view key) const {
  const Value* const value = impl_->Find(key, true);
  if (value == nullptr) return std::nullopt;
  std::vector<double> numbers;
  numbers.reserve(value->type == kString ? 0 : static_cast<size_t>(value->count));
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto number = FloatAt(*value, i);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

std::string_view GgufFile::header() const {
  return {reinterpret_cast<const char*>(impl_->file->data()), impl_->header_bytes};
}

size_t GgufFile::bytes() const { return impl_->file->size(); }
const std::vector<TensorInfo>& GgufFile::tensors() const { return impl_->tensors; }
const std::string& GgufFile::path() const { return impl_->file->path(); }

}  // namespace sysone
