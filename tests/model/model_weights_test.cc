// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "model/mapped_file.h"
#include "model/model_files.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {
namespace fs = std::filesystem;

const std::string kGolden = SYSONE_SOURCE_DIR "/tests/golden/";

class ModelWeightsTest : public ::testing::Test {
 protected:
  // A copy of a golden checkpoint that a test may damage.
  std::string Copy(const std::string& family) {
    const std::string to = folder_.path() + "/" + family;
    fs::remove_all(to);
    fs::copy(kGolden + family, to);
    return to;
  }
  void ExpectError(const std::string& path, Code code, const std::string& text) {
    const auto weights = OpenModelWeights(path);
    ASSERT_FALSE(weights.ok()) << "should say: " << text;
    EXPECT_EQ(weights.status().code(), code) << weights.status().message();
    EXPECT_NE(weights.status().message().find(text), std::string::npos)
        << weights.status().message() << "\nshould say: " << text;
  }
  TempFolder folder_;
};

TEST_F(ModelWeightsTest, OpensEveryGoldenFamily) {
  for (const char* family : {"llama", "llama3", "qwen2", "qwen3"}) {
    const auto weights = OpenModelWeights(kGolden + family);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const ModelConfig& config = weights->config;
    const auto q = weights->tensors.Get(LayerTensorName(config.names.q, 1),
                                        {config.heads * config.head_dim, config.hidden});
    ASSERT_TRUE(q.ok()) << q.status().message();
    std::vector<float> row(static_cast<size_t>(config.hidden));
    ReadRows(**q, (*q)->rows() - 1, 1, row.data());
    EXPECT_NE(row.back(), 0);
  }
}

TEST_F(ModelWeightsTest, TheFingerprintIsThatOfConfigAndDirectory) {
  const std::string copy = Copy("llama");
  const auto first = OpenModelWeights(kGolden + "llama");
  const auto same = OpenModelWeights(copy);
  ASSERT_TRUE(first.ok() && same.ok());
  EXPECT_EQ(first->fingerprint.size(), 16u);
  EXPECT_EQ(first->fingerprint, same->fingerprint);
  const auto config = ReadWholeFile(copy + "/config.json");
  ASSERT_TRUE(config.ok());
  folder_.Write("llama/config.json", *config + " ");
  EXPECT_NE(OpenModelWeights(copy)->fingerprint, first->fingerprint);
  EXPECT_NE(OpenModelWeights(kGolden + "llama3")->fingerprint, first->fingerprint);
}

TEST_F(ModelWeightsTest, NamesMissingFilesAndWrongTensors) {
  ExpectError(folder_.path() + "/absent.gguf", Code::kNotFound, "absent.gguf");
  ExpectError(folder_.Write("x.gguf", "no model"), Code::kCorrupt, "x.gguf: not a GGUF file");
  std::string copy = Copy("qwen3");
  fs::remove(copy + "/config.json");
  ExpectError(copy, Code::kNotFound, "config.json");
  copy = Copy("qwen3");
  fs::remove(copy + "/model.safetensors");
  ExpectError(copy, Code::kNotFound, "model.safetensors");
  copy = Copy("qwen3");
  fs::resize_file(copy + "/model.safetensors", 500000);
  ExpectError(copy, Code::kCorrupt, "model.safetensors: tensor");
  copy = Copy("qwen3");
  fs::copy_file(kGolden + "llama/config.json", copy + "/config.json",
                fs::copy_options::overwrite_existing);
  ExpectError(copy, Code::kCorrupt, "the config asks for [768, 144]");
  folder_.Write("qwen3/config.json", "{}");
  ExpectError(copy, Code::kCorrupt, "config.json: \"model_type\" is missing");
}

}  // namespace
}  // namespace sysone
