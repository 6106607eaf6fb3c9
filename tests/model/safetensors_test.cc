// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/json.h"
#include "tests/model/safetensors_writer.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  uint64_t begin, uint64_t end) {
  return SafetensorsEntry(name, dtype, shape, begin, end);
}

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

class Safetensors : public ::testing::Test {
 protected:
  Result<SafetensorsFile> Open(const std::string& bytes) {
    return OpenSafetensors(folder_.Write("file.safetensors", bytes));
  }
  template <class T>
  void ExpectFailed(const Result<T>& result, Code code, const std::string& text) {
    ASSERT_FALSE(result.ok()) << "should say: " << text;
    EXPECT_EQ(result.status().code(), code) << result.status().message();
    EXPECT_NE(result.status().message().find(text), std::string::npos)
        << result.status().message() << "\nshould say: " << text;
  }
  void ExpectError(const std::string& entries, const std::string& data, Code code,
                   const std::string& text) {
    ExpectFailed(Open(SafetensorsBytes("{" + entries + "}", data)), code, text);
  }
  TempFolder folder_;
};

TEST_F(Safetensors, ReadsTensorsOfAllThreeTypes) {
  // 1.5 is 0x3e00 as a half and 0x3fc0 as a bfloat16; the header's length leaves the data unaligned.
  const auto file = Open(SafetensorsBytes(
      "{\"__metadata__\":{\"format\":\"pt\"}," + Entry("b", "F16", "[1]", 8, 10) + "," +
          Entry("a", "F32", "[2,1]", 0, 8) + "," + Entry("c", "BF16", "[1,1,1]", 10, 12) + "}   ",
      Floats({1, -2}) + std::string("\x00\x3e\xc0\x3f", 4)));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const TensorIndex index(file->tensors, {file->file});
  ASSERT_EQ(index.tensors().size(), 3u);
  float value = 0;
  ReadRows(*index.Find("a"), 1, 1, &value);
  EXPECT_EQ(value, -2);
  ReadRows(*index.Find("b"), 0, 1, &value);
  EXPECT_EQ(value, 1.5);
  ReadRows(*index.Find("c"), 0, 1, &value);
  EXPECT_EQ(value, 1.5);
  EXPECT_EQ(index.Find("c")->shape, (std::vector<int64_t>{1, 1, 1}));
}

TEST_F(Safetensors, EveryTruncationIsAnErrorAndNoCrash) {
  const std::string whole = SafetensorsBytes(
      "{" + Entry("a", "F32", "[2]", 0, 8) + "," + Entry("b", "BF16", "[1]", 8, 10) + "}",
      std::string(10, 'x'));
  ASSERT_TRUE(Open(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length)
    ASSERT_EQ(Open(whole.substr(0, length)).status().code(), Code::kCorrupt) << length;
}

TEST_F(Safetensors, EveryByteMayBeWrongWithoutACrash) {
  const std::string whole = SafetensorsBytes(
      "{" + Entry("a", "F32", "[2]", 0, 8) + "," + Entry("b", "BF16", "[1]", 8, 10) + "}",
      std::string(10, 'x'));
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at)
    for (const char value : {'\0', '"', '-', '9', '}', '\xff'}) {
      std::string changed = whole;
      changed[at] = value;
      const auto file = Open(changed);
      if (!file.ok()) {
        ++refused;
        continue;
      }
      // What was accepted must be readable to the last byte.
      for (const TensorInfo& tensor : file->tensors) {
        std::vector<float> rows(static_cast<size_t>(tensor.rows() * tensor.cols()));
        ReadRows(tensor, 0, tensor.rows(), rows.data());
      }
    }
  EXPECT_GT(refused, whole.size());  // most damage to a header of offsets and shapes is seen
}

TEST_F(Safetensors, RefusesOffsetsThatContradictTheFile) {
  const std::string eight(8, 'x');
  ExpectError(Entry("a", "F32", "[2]", 0, 4), eight, Code::kCorrupt, "\"a\"");
  ExpectError(Entry("a", "F32", "[2]", 8, 0), eight, Code::kCorrupt, "does not fill");
  ExpectError(Entry("a", "F32", "[3]", 0, 12), eight, Code::kCorrupt, "truncated");
  ExpectError(Entry("a", "F32", "[2]", 1ull << 62, (1ull << 62) + 8), eight, Code::kCorrupt,
              "truncated");
  ExpectError(Entry("a", "F32", "[-2]", 0, 8), eight, Code::kCorrupt, "[-2]");
  ExpectError(Entry("a", "F32", "[4611686018427387904,4]", 0, 8), eight, Code::kCorrupt, "\"a\"");
  ExpectError(Entry("a", "F32", "[2]", 0, 8) + "," + Entry("b", "F32", "[1]", 4, 8), eight,
              Code::kCorrupt, "overlaps");
  ExpectError(Entry("a", "F32", "[1]", 4, 8), eight, Code::kCorrupt, "gap");
  ExpectError(Entry("a", "F32", "[1]", 0, 4), eight, Code::kCorrupt, "4 bytes behind the last");
  ExpectError(Entry("a", "F32", "[1.5]", 0, 4), eight, Code::kCorrupt, "\"a\"");
  ExpectError("\"a\":{\"dtype\":\"F32\"}", eight, Code::kCorrupt, "\"a\"");
  ExpectError("\"a\":3", eight, Code::kCorrupt, "\"a\"");
}

TEST_F(Safetensors, RefusesABadHeader) {
  ExpectFailed(Open(SafetensorsBytes("{\"a\"", "")), Code::kCorrupt, "not JSON");
  ExpectFailed(Open(SafetensorsBytes("[]", "")), Code::kCorrupt, "no JSON object");
  ExpectFailed(Open(std::string(8, '\xff') + "{}"), Code::kCorrupt, "header claims");
  ExpectFailed(OpenSafetensors(folder_.path() + "/absent.safetensors"), Code::kNotFound,
               "absent.safetensors");
}

TEST_F(Safetensors, NamesTheTypeThatItCannotRead) {
  ExpectError(Entry("q.weight", "F8_E4M3", "[4]", 0, 4), "1234", Code::kUnsupported,
              "tensor \"q.weight\" has dtype F8_E4M3");
}

std::string OneTensor(const std::string& name, float value) {
  return SafetensorsBytes("{" + Entry(name, "F32", "[1]", 0, 4) + "}", Floats({value}));
}

TEST_F(Safetensors, ReadsShardsThroughTheIndex) {
  folder_.Write("s-1.safetensors", OneTensor("a", 1));
  folder_.Write("s-2.safetensors", OneTensor("b", 2));
  folder_.Write("model.safetensors.index.json",
                R"({"metadata":{},"weight_map":{"b":"s-2.safetensors","a":"s-1.safetensors"}})");
  const auto files = OpenSafetensorsFolder(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].tensors[0].name, "a");
  EXPECT_EQ((*files)[1].tensors[0].name, "b");
}

TEST_F(Safetensors, TheSingleFileIsPreferredToAnIndex) {
  folder_.Write("model.safetensors", OneTensor("a", 1));
  folder_.Write("model.safetensors.index.json", R"({"weight_map":{"b":"absent.safetensors"}})");
  const auto files = OpenSafetensorsFolder(folder_.path());
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->size(), 1u);
}

TEST_F(Safetensors, NamesWhatIsWrongWithTheShards) {
  ExpectFailed(OpenSafetensorsFolder(folder_.path()), Code::kNotFound, "model.safetensors");
  const auto with = [&](const std::string& index) {
    folder_.Write("model.safetensors.index.json", index);
    return OpenSafetensorsFolder(folder_.path());
  };
  folder_.Write("s-1.safetensors", OneTensor("a", 1));
  folder_.Write("s-2.safetensors", OneTensor("a", 2));
  ExpectFailed(with(R"({"weight_map":{"a":"gone.safetensors"}})"), Code::kNotFound,
               "gone.safetensors");
  ExpectFailed(with(R"({"weight_map":{"a":"s-1.safetensors","z":"s-1.safetensors"}})"),
               Code::kCorrupt, "\"z\" is missing");
  ExpectFailed(with(R"({"weight_map":{"a":"s-1.safetensors","b":"s-2.safetensors"}})"),
               Code::kCorrupt, "in another shard too");
  ExpectFailed(with(R"({"weight_map":{"a":"../s-1.safetensors"}})"), Code::kCorrupt,
               "no plain file name");
  ExpectFailed(with(R"({"weight_map":{"a":1}})"), Code::kCorrupt, "no plain file name");
  ExpectFailed(with("{}"), Code::kCorrupt, "weight_map");
  ExpectFailed(with("{"), Code::kCorrupt, "index.json");
}

}  // namespace
}  // namespace sysone
