// SPDX-License-Identifier: Apache-2.0
#include "model/model_path.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/catalogue.h"
#include "model/mapped_file.h"
#include "model/model_folder.h"

namespace sysone {
namespace fs = std::filesystem;
namespace {

Result<ModelPath> FromPath(const std::string& model) {
  fs::path path = fs::path(model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  if (!IsFolder(model)) return ModelPath{model, path.stem().string()};
  // "." and ".." have no name of their own.
  std::error_code error;
  const std::string name = fs::weakly_canonical(path, error).filename().string();
  SYSONE_ASSIGN_OR_RETURN(const std::string checkpoint, FindCheckpoint(path.string()));
  return ModelPath{checkpoint, name};
}

ModelPath FromCatalogue(const CatalogueModel& model, const CachePlaces& places) {
  const std::string path = places.sysone_models + "/" + model.file;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  const bool there = !error && bytes == static_cast<uintmax_t>(model.bytes);
  return ModelPath{there ? path : "", model.name};
}

struct HubId {
  std::string org, name, revision;
};

// "org/name" or "org/name@revision", of the characters that the hub allows.
std::optional<HubId> ParseHubId(const std::string& model) {
  const size_t at = model.find('@');
  const std::string id = model.substr(0, at);
  const size_t slash = id.find('/');
  if (slash == std::string::npos) return std::nullopt;
  HubId hub{id.substr(0, slash), id.substr(slash + 1),
            at == std::string::npos ? "main" : model.substr(at + 1)};
  const auto is_name = [](const std::string& text) {
    return !text.empty() && text != "." && text != ".." &&
           std::all_of(text.begin(), text.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_' || c == '.';
           });
  };
  if (!is_name(hub.org) || !is_name(hub.name)) return std::nullopt;
  // A revision becomes part of a path; branches like "refs/pr/1" have slashes.
  if (hub.revision.empty() || hub.revision.front() == '/' ||
      hub.revision.find("..") != std::string::npos)
    return std::nullopt;
  return hub;
}

Result<ModelPath> FromHub(const HubId& hub, const CachePlaces& places) {
  const std::string id = hub.org + "/" + hub.name;
  const std::string repository = places.hub + "/models--" + hub.org + "--" + hub.name;
  std::string commit =
      hub.revision;  // a commit is its own name; branches and tags are files in refs/
  const std::string ref = repository + "/refs/" + hub.revision;
  if (PathExists(ref) && !IsFolder(ref)) {
    SYSONE_ASSIGN_OR_RETURN(commit, ReadWholeFile(ref));
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' ')) commit.pop_back();
  }
  const std::string snapshot = repository + "/snapshots/" + commit;
  if (commit.empty() || !IsFolder(snapshot))
    return Error(Code::kNotFound,
                 "model \"%s\" (revision %s) is not in the hub cache: neither %s nor a snapshot of "
                 "that name; download it first",
                 id.c_str(), hub.revision.c_str(), ref.c_str());
  const auto checkpoint = FindCheckpoint(snapshot);
  if (!checkpoint.ok())
    return checkpoint.status().WithContext("model \"" + id + "\" in the hub cache");
  return ModelPath{*checkpoint, id};
}

}  // namespace

Result<ModelPath> ResolveModel(const std::string& model, const CachePlaces& places) {
  if (model.empty()) return Error(Code::kInvalidArgument, "the model's name is empty");
  if (PathExists(model)) return FromPath(model);
  if (const auto known = FindInCatalogue(model)) return FromCatalogue(*known, places);
  if (const auto hub = ParseHubId(model)) return FromHub(*hub, places);
  std::string names;
  for (const CatalogueModel& known : ReadCatalogue())
    names += (names.empty() ? "" : ", ") + known.name;
  return Error(Code::kNotFound,
               "model \"%s\": no such file or folder, no name of the catalogue (%s), and no hub id "
               "like org/name",
               model.c_str(), names.c_str());
}

}  // namespace sysone
