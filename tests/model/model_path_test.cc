// SPDX-License-Identifier: Apache-2.0
#include "model/model_path.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/catalogue.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {
namespace fs = std::filesystem;

class ResolveModelTest : public ::testing::Test {
 protected:
  ResolveModelTest() : places_{folder_.path() + "/models", folder_.path() + "/hub"} {}

  Result<ModelPath> Resolve(const std::string& model) { return ResolveModel(model, places_); }
  void ExpectPath(const std::string& model, const std::string& path, const std::string& name) {
    const auto resolved = Resolve(model);
    ASSERT_TRUE(resolved.ok()) << resolved.status().message();
    EXPECT_EQ(resolved->path, path);
    EXPECT_EQ(resolved->served_name, name);
  }
  void ExpectError(const std::string& model, Code code, const std::string& text) {
    const auto resolved = Resolve(model);
    ASSERT_FALSE(resolved.ok()) << "should say: " << text;
    EXPECT_EQ(resolved.status().code(), code) << resolved.status().message();
    EXPECT_NE(resolved.status().message().find(text), std::string::npos)
        << resolved.status().message() << "\nshould say: " << text;
  }
  // As the hub's client lays files out: the file in blobs/, a link to it in the snapshot.
  void AddToSnapshot(const std::string& repository, const std::string& commit,
                     const std::string& file, const std::string& text = "x") {
    const std::string root = "hub/" + repository;
    folder_.Write(root + "/blobs/" + commit + file, text);
    const fs::path snapshot = folder_.path() + "/" + root + "/snapshots/" + commit;
    fs::create_directories(snapshot);
    fs::create_symlink("../../blobs/" + commit + file, snapshot / file);
  }
  std::string Snapshot(const std::string& repository, const std::string& commit) {
    return places_.hub + "/" + repository + "/snapshots/" + commit;
  }
  void AddRef(const std::string& repository, const std::string& ref, const std::string& commit) {
    folder_.Write("hub/" + repository + "/refs/" + ref, commit);
  }

  TempFolder folder_;
  CachePlaces places_;
};

TEST_F(ResolveModelTest, AnExistingFileIsTakenAndServedUnderItsStem) {
  const std::string path = folder_.Write("tiny.Q8_0.gguf", "x");
  ExpectPath(path, path, "tiny.Q8_0");
}

TEST_F(ResolveModelTest, AnExistingFolderIsServedUnderItsName) {
  const std::string golden = SYSONE_SOURCE_DIR "/tests/golden/llama";
  ExpectPath(golden, golden, "llama");
  ExpectPath(golden + "/", golden, "llama");
  ExpectPath(golden + "/../llama/.", golden, "llama");
}

TEST_F(ResolveModelTest, AFolderWithOneGgufFileMeansThatFile) {
  const std::string path = folder_.Write("repo/a.gguf", "x");
  folder_.Write("repo/README.md", "x");
  ExpectPath(folder_.path() + "/repo", path, "repo");
  folder_.Write("repo/b.gguf", "x");
  ExpectError(folder_.path() + "/repo", Code::kInvalidArgument, "b.gguf");
  ExpectError(folder_.path() + "/repo", Code::kInvalidArgument, "a.gguf");
}

TEST_F(ResolveModelTest, AFolderWithoutAModelIsNotFound) {
  folder_.Write("empty/README.md", "x");
  ExpectError(folder_.path() + "/empty", Code::kNotFound, "no model.safetensors");
  folder_.Write("half/model.safetensors", "x");
  ExpectError(folder_.path() + "/half", Code::kNotFound, "half/config.json is missing");
  folder_.Write("half/config.json", "{}");
  ExpectError(folder_.path() + "/half", Code::kNotFound, "half/tokenizer.json is missing");
}

TEST_F(ResolveModelTest, ACatalogueNameIsItsFileWhenThatIsWhole) {
  const auto model = FindInCatalogue("smollm2-135m");
  ASSERT_TRUE(model.has_value());
  ExpectPath("smollm2-135m", "", "smollm2-135m");
  const std::string path = folder_.Write("models/" + model->file, "part of it");
  ExpectPath("smollm2-135m", "", "smollm2-135m");
  fs::resize_file(path, static_cast<uintmax_t>(model->bytes));  // sparse
  ExpectPath("smollm2-135m", path, "smollm2-135m");
}

TEST_F(ResolveModelTest, AHubIdIsTheSnapshotOfMain) {
  const std::string repository = "models--Some-Org--Tiny.1_b";
  ExpectError("Some-Org/Tiny.1_b", Code::kNotFound, "refs/main");
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"})
    AddToSnapshot(repository, "abc123", file);
  ExpectError("Some-Org/Tiny.1_b", Code::kNotFound, "refs/main");  // no ref yet
  AddRef(repository, "main", "abc123\n");
  ExpectPath("Some-Org/Tiny.1_b", Snapshot(repository, "abc123"), "Some-Org/Tiny.1_b");
}

TEST_F(ResolveModelTest, ARevisionIsARefOrACommit) {
  const std::string repository = "models--o--n";
  AddToSnapshot(repository, "old", "m.gguf");
  AddToSnapshot(repository, "new", "m.gguf");
  AddRef(repository, "main", "new");
  AddRef(repository, "v1", "old");
  AddRef(repository, "refs/pr/1", "old");
  ExpectPath("o/n", Snapshot(repository, "new") + "/m.gguf", "o/n");
  ExpectPath("o/n@v1", Snapshot(repository, "old") + "/m.gguf", "o/n");
  ExpectPath("o/n@old", Snapshot(repository, "old") + "/m.gguf", "o/n");
  ExpectPath("o/n@refs/pr/1", Snapshot(repository, "old") + "/m.gguf", "o/n");
  ExpectError("o/n@v2", Code::kNotFound, "revision v2");
}

TEST_F(ResolveModelTest, APartialSnapshotCountsAsNotThere) {
  const std::string repository = "models--o--n";
  AddRef(repository, "main", "c");
  AddToSnapshot(repository, "c", "config.json");
  AddToSnapshot(repository, "c", "tokenizer.json");
  AddToSnapshot(repository, "c", "model.safetensors.index.json",
                R"({"weight_map":{"a":"s-1.safetensors","b":"s-2.safetensors"}})");
  AddToSnapshot(repository, "c", "s-1.safetensors");
  ExpectError("o/n", Code::kNotFound, "s-2.safetensors is missing");
  AddToSnapshot(repository, "c", "s-2.safetensors");
  ExpectPath("o/n", Snapshot(repository, "c"), "o/n");
  fs::remove(folder_.path() + "/hub/" + repository + "/blobs/cs-2.safetensors");  // dangling link
  ExpectError("o/n", Code::kNotFound, "s-2.safetensors is missing");
}

TEST_F(ResolveModelTest, AHubFolderWithSeveralGgufFilesListsThem) {
  AddRef("models--o--n", "main", "c");
  AddToSnapshot("models--o--n", "c", "q4.gguf");
  AddToSnapshot("models--o--n", "c", "q8.gguf");
  ExpectError("o/n", Code::kInvalidArgument, Snapshot("models--o--n", "c") + "/q8.gguf");
}

TEST_F(ResolveModelTest, OtherNamesAreNotFoundAndNeverLeaveTheCache) {
  ExpectError("no-such-model", Code::kNotFound, "smollm2-135m");
  ExpectError("", Code::kInvalidArgument, "empty");
  folder_.Write("secret/m.gguf", "x");
  for (const char* name : {"a/b/c", "/absent/path.gguf", "../x", "o/..", "o/n@../../secret",
                           "o/n@/secret", "o/n@", "o/", "/n", "o/n m"})
    ExpectError(name, Code::kNotFound, "no hub id");
}

}  // namespace
}  // namespace sysone
