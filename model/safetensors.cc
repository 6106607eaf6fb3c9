// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <unordered_set>
#include <utility>

#include "base/json.h"

namespace sysone {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the format's own bound

std::optional<TensorType> TypeOfDtype(std::string_view dtype) {
  if (dtype == "F32") return TensorType::kF32;
  if (dtype == "F16") return TensorType::kF16;
  if (dtype == "BF16") return TensorType::kBF16;
  return std::nullopt;
}

std::optional<std::vector<int64_t>> Integers(const Json* json) {
  if (json == nullptr || !json->is_array()) return std::nullopt;
  std::vector<int64_t> integers;
  for (const Json& item : json->items()) {
    const auto integer = item.AsInt64();
    if (!integer) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

// One entry of the header; `data` is what lies behind the header.
Result<TensorInfo> ReadEntry(const Json::Member& member, const std::byte* data, size_t data_bytes) {
  const auto& [name, entry] = member;
  const Json* const dtype = entry.Find("dtype");
  const auto shape = Integers(entry.Find("shape"));
  const auto offsets = Integers(entry.Find("data_offsets"));
  if (dtype == nullptr || !dtype->is_string() || !shape || !offsets || offsets->size() != 2)
    return Error(Code::kCorrupt, "tensor \"%s\" lacks a proper dtype, shape or data_offsets",
                 name.c_str());
  const auto type = TypeOfDtype(dtype->string());
  if (!type)
    return Error(Code::kUnsupported, "tensor \"%s\" has dtype %s; supported: F32 F16 BF16",
                 name.c_str(), dtype->string().c_str());
  TensorInfo tensor;
  tensor.name = name;
  tensor.type = *type;
  tensor.shape = *shape;
  const auto bytes = TensorBytes(*type, *shape);
  const int64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (!bytes || begin < 0 || end < begin || static_cast<uint64_t>(end - begin) != *bytes)
    return Error(Code::kCorrupt, "tensor \"%s\": %s of shape %s does not fill bytes [%lld, %lld)",
                 name.c_str(), dtype->string().c_str(), ShapeText(*shape).c_str(),
                 static_cast<long long>(begin), static_cast<long long>(end));
  if (static_cast<uint64_t>(end) > data_bytes)
    return Error(Code::kCorrupt,
                 "tensor \"%s\" ends at byte %lld of %zu bytes of data; is it truncated?",
                 name.c_str(), static_cast<long long>(end), data_bytes);
  tensor.bytes = *bytes;
  tensor.data = data + begin;
  return tensor;
}

// The format has no gaps: the tensors, in the order of their offsets, cover the data exactly.
Status CheckCoverage(const std::vector<TensorInfo>& tensors, const std::byte* data,
                     size_t data_bytes) {
  std::vector<const TensorInfo*> sorted;
  for (const TensorInfo& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->data < b->data; });
  const std::byte* expected = data;
  for (const TensorInfo* const tensor : sorted) {
    if (tensor->data != expected)
      return Error(Code::kCorrupt, "tensor \"%s\" %s", tensor->name.c_str(),
                   tensor->data < expected ? "overlaps another" : "leaves a gap before it");
    expected = tensor->data + tensor->bytes;
  }
  if (expected != data + data_bytes)
    return Error(Code::kCorrupt, "%zu bytes behind the last tensor",
                 static_cast<size_t>(data + data_bytes - expected));
  return Status();
}

Result<SafetensorsFile> Parse(std::shared_ptr<const MappedFile> file) {
  uint64_t header_bytes = 0;
  if (file->size() < sizeof(header_bytes))
    return Error(Code::kCorrupt, "%zu bytes are no safetensors file", file->size());
  std::memcpy(&header_bytes, file->data(), sizeof(header_bytes));
  const size_t left = file->size() - sizeof(header_bytes);
  if (header_bytes > left || header_bytes > kMostHeaderBytes)
    return Error(Code::kCorrupt, "the header claims %llu bytes, %zu are there",
                 static_cast<unsigned long long>(header_bytes), left);
  SafetensorsFile out;
  out.header = {reinterpret_cast<const char*>(file->data()), sizeof(header_bytes) + header_bytes};
  const auto header = Json::Parse(out.header.substr(sizeof(header_bytes)));
  if (!header.ok())
    return Error(Code::kCorrupt, "the header is not JSON: %s", header.status().message().c_str());
  if (!header->is_object()) return Error(Code::kCorrupt, "the header is no JSON object");

  const std::byte* const data = file->data() + out.header.size();
  const size_t data_bytes = file->size() - out.header.size();
  for (const Json::Member& member : header->members()) {
    if (member.first == "__metadata__") continue;
    SYSONE_ASSIGN_OR_RETURN(TensorInfo tensor, ReadEntry(member, data, data_bytes));
    out.tensors.push_back(std::move(tensor));
  }
  SYSONE_RETURN_IF_ERROR(CheckCoverage(out.tensors, data, data_bytes));
  out.file = std::move(file);
  return out;
}

// The index's weight_map: tensor name and shard.
Result<std::vector<std::pair<std::string, std::string>>> ReadIndex(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const auto json = Json::Parse(text);
  if (!json.ok())
    return Error(Code::kCorrupt, "%s: %s", path.c_str(), json.status().message().c_str());
  const Json* const map = json->Find("weight_map");
  if (map == nullptr || !map->is_object() || map->members().empty())
    return Error(Code::kCorrupt, "%s: no \"weight_map\"", path.c_str());
  std::vector<std::pair<std::string, std::string>> placed;
  for (const auto& [tensor, shard] : map->members()) {
    // A name with a folder in it could lead out of the checkpoint.
    if (!shard.is_string() || shard.string().empty() ||
        shard.string().find('/') != std::string::npos)
      return Error(Code::kCorrupt, "%s: \"%s\" is placed in no plain file name", path.c_str(),
                   tensor.c_str());
    placed.emplace_back(tensor, shard.string());
  }
  return placed;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

Result<SafetensorsFile> OpenSafetensors(const std::string& path) {
  SYSONE_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  auto parsed = Parse(std::move(file));
  if (!parsed.ok()) return parsed.status().WithContext(path);
  return parsed;
}

Result<std::vector<std::string>> ListSafetensors(const std::string& folder) {
  if (Exists(folder + "/" + kSingleFile))
    return std::vector<std::string>{folder + "/" + kSingleFile};
  if (!Exists(folder + "/" + kIndexFile))
    return Error(Code::kNotFound, "%s: neither %s nor %s", folder.c_str(), kSingleFile, kIndexFile);
  SYSONE_ASSIGN_OR_RETURN(const auto placed, ReadIndex(folder + "/" + kIndexFile));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : placed) shards.insert(folder + "/" + shard);
  return std::vector<std::string>(shards.begin(), shards.end());
}

Result<std::vector<SafetensorsFile>> OpenSafetensorsFolder(const std::string& folder) {
  SYSONE_ASSIGN_OR_RETURN(const auto paths, ListSafetensors(folder));
  std::vector<SafetensorsFile> files;
  std::unordered_set<std::string> found;  // "shard/tensor", and every tensor once
  for (const std::string& path : paths) {
    SYSONE_ASSIGN_OR_RETURN(SafetensorsFile file, OpenSafetensors(path));
    for (const TensorInfo& tensor : file.tensors) {
      if (!found.insert(tensor.name).second)
        return Error(Code::kCorrupt, "%s: tensor \"%s\" is in another shard too", path.c_str(),
                     tensor.name.c_str());
      found.insert(path + "/" + tensor.name);
    }
    files.push_back(std::move(file));
  }
  if (Exists(folder + "/" + kSingleFile)) return files;
  SYSONE_ASSIGN_OR_RETURN(const auto placed, ReadIndex(folder + "/" + kIndexFile));
  for (const auto& [tensor, shard] : placed)
    if (!found.count(folder + "/" + shard + "/" + tensor))
      return Error(Code::kCorrupt, "%s/%s: tensor \"%s\" is missing, which %s places there",
                   folder.c_str(), shard.c_str(), tensor.c_str(), kIndexFile);
  return files;
}

}  // namespace sysone
