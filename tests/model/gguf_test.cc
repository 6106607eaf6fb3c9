// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/model/gguf_writer.h"
#include "tests/model/temp_folder.h"

namespace sysone {
namespace {

class Gguf : public ::testing::Test {
 protected:
  Result<std::shared_ptr<const GgufFile>> Open(const std::string& bytes) {
    return GgufFile::Open(folder_.Write("file.gguf", bytes));
  }
  // The status of opening `writer`'s file, which must fail with `code` and say `text`.
  void ExpectError(const std::string& bytes, Code code, const std::string& text) {
    const auto file = Open(bytes);
    ASSERT_FALSE(file.ok()) << "should say: " << text;
    EXPECT_EQ(file.status().code(), code) << file.status().message();
    EXPECT_NE(file.status().message().find(text), std::string::npos) << file.status().message();
    EXPECT_NE(file.status().message().find("file.gguf"), std::string::npos);
  }
  TempFolder folder_;
};

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

GgufWriter Small() {
  GgufWriter writer;
  writer.String("general.architecture", "llama").U32("n", 7).F32("x", 0.5f);
  writer.Strings("words", {"a", "", "long word"}).Array<int32_t>("ids", kGgufI32, {-1, 2, 3});
  writer.Tensor("m", {3, 2}, 0, Floats({1, 2, 3, 4, 5, 6})).Tensor("v", {2}, 0, Floats({7, 8}));
  return writer;
}

TEST_F(Gguf, ReadsScalarsOfEveryType) {
  GgufWriter writer;
  writer.Scalar<uint8_t>("u8", kGgufU8, 200).Scalar<int8_t>("i8", kGgufI8, -100);
  writer.Scalar<uint16_t>("u16", kGgufU16, 60000).Scalar<int16_t>("i16", kGgufI16, -30000);
  writer.Scalar<uint32_t>("u32", kGgufU32, 4000000000u).Scalar<int32_t>("i32", kGgufI32, -5);
  writer.Scalar<uint64_t>("u64", kGgufU64, 1ull << 40)
      .Scalar<int64_t>("i64", kGgufI64, -(1ll << 40));
  writer.Scalar<uint64_t>("huge", kGgufU64, std::numeric_limits<uint64_t>::max());
  writer.F32("f32", 1.5f).Scalar<double>("f64", kGgufF64, 0.1);
  writer.Scalar<uint8_t>("yes", kGgufBool, 1).Scalar<uint8_t>("no", kGgufBool, 0);
  writer.String("text", "h\xc3\xa9").String("empty", "");
  const auto opened = Open(writer.Bytes());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const GgufFile& file = **opened;
  EXPECT_EQ(file.Int("u8"), 200);
  EXPECT_EQ(file.Int("i8"), -100);
  EXPECT_EQ(file.Int("u16"), 60000);
  EXPECT_EQ(file.Int("i16"), -30000);
  EXPECT_EQ(file.Int("u32"), 4000000000);
  EXPECT_EQ(file.Int("i32"), -5);
  EXPECT_EQ(file.Int("u64"), 1ll << 40);
  EXPECT_EQ(file.Int("i64"), -(1ll << 40));
  EXPECT_EQ(file.Int("huge"), std::nullopt);  // does not fit
  EXPECT_EQ(file.Float("f32"), 1.5);
  EXPECT_EQ(file.Float("f64"), 0.1);
  EXPECT_EQ(file.Float("u8"), 200.0);
  EXPECT_EQ(file.Bool("yes"), true);
  EXPECT_EQ(file.Bool("no"), false);
  EXPECT_EQ(file.String("text"), "h\xc3\xa9");
  EXPECT_EQ(file.String("empty"), "");
}

TEST_F(Gguf, AnswersNothingForAbsentKeysAndOtherTypes) {
  const auto opened = Open(Small().Bytes());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const GgufFile& file = **opened;
  EXPECT_EQ(file.Int("nothing"), std::nullopt);
  EXPECT_EQ(file.Int("x"), std::nullopt);
  EXPECT_EQ(file.Int("ids"), std::nullopt);
  EXPECT_EQ(file.Bool("n"), std::nullopt);
  EXPECT_EQ(file.String("n"), std::nullopt);
  EXPECT_EQ(file.String("words"), std::nullopt);
  EXPECT_EQ(file.Float("general.architecture"), std::nullopt);
  EXPECT_EQ(file.Strings("ids"), std::nullopt);
  EXPECT_EQ(file.Ints("words"), std::nullopt);
  EXPECT_EQ(file.Ints("n"), std::nullopt);
  EXPECT_EQ(file.Floats("words"), std::nullopt);
}

TEST_F(Gguf, ReadsArrays) {
  GgufWriter writer = Small();
  writer.Array<float>("scores", kGgufF32, {0.25f, -1}).Array<uint8_t>("none", kGgufU8, {});
  const auto opened = Open(writer.Bytes());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ((*opened)->Strings("words"), (std::vector<std::string_view>{"a", "", "long word"}));
  EXPECT_EQ((*opened)->Ints("ids"), (std::vector<int64_t>{-1, 2, 3}));
  EXPECT_EQ((*opened)->Floats("scores"), (std::vector<double>{0.25, -1}));
  EXPECT_EQ((*opened)->Ints("none"), std::vector<int64_t>{});
}

TEST_F(Gguf, TurnsShapesRoundAndFindsTheData) {
  for (const uint32_t version : {2u, 3u}) {
    const auto opened = Open(Small().Bytes(version));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    const auto& tensors = (*opened)->tensors();
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[0].name, "m");
    EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(tensors[0].bytes, 24u);
    float row[3];
    ReadRows(tensors[0], 1, 1, row);
    EXPECT_EQ(row[0], 4);
    EXPECT_EQ(row[2], 6);
    ReadRows(tensors[1], 0, 1, row);
    EXPECT_EQ(row[1], 8);
  }
}

TEST_F(Gguf, HonoursTheStatedAlignment) {
  GgufWriter writer;
  writer.Alignment(128).Tensor("a", {1}, 0, Floats({1})).Tensor("b", {1}, 0, Floats({2}));
  const auto opened = Open(writer.Bytes());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  float value = 0;
  ReadRows((*opened)->tensors()[1], 0, 1, &value);
  EXPECT_EQ(value, 2);
  for (const uint32_t wrong : {0u, 3u, 1u << 30}) {
    GgufWriter bad;
    bad.U32("general.alignment", wrong).Tensor("a", {1}, 0, Floats({1}));
    ExpectError(bad.Bytes(), Code::kCorrupt, "general.alignment");
  }
}

TEST_F(Gguf, EveryTruncationIsAnErrorAndNoCrash) {
  const std::string whole = Small().Bytes();
  ASSERT_TRUE(Open(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length) {
    const auto opened = Open(whole.substr(0, length));
    ASSERT_FALSE(opened.ok()) << "with " << length << " of " << whole.size() << " bytes";
    EXPECT_EQ(opened.status().code(), Code::kCorrupt) << opened.status().message();
  }
}

TEST_F(Gguf, EveryByteMayBeWrongWithoutACrash) {
  const std::string whole = Small().Bytes();
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      const auto opened = Open(changed);
      if (!opened.ok()) {
        ++refused;
        continue;
      }
      // What was accepted must be readable to the last byte.
      for (const TensorInfo& tensor : (*opened)->tensors()) {
        std::vector<float> rows(static_cast<size_t>(tensor.rows() * tensor.cols()));
        ReadRows(tensor, 0, tensor.rows(), rows.data());
      }
      (void)(*opened)->Strings("words");
      (void)(*opened)->Floats("ids");
    }
  EXPECT_GT(refused, whole.size());  // most damage to a header of counts and lengths is seen
}

TEST_F(Gguf, NamesWhatIsWrongWithTheStart) {
  ExpectError("GGML....", Code::kCorrupt, "not a GGUF file");
  ExpectError("", Code::kCorrupt, "ends inside the magic number");
  ExpectError(Small().Bytes(1), Code::kUnsupported, "version 1");
  ExpectError(Small().Bytes(4), Code::kUnsupported, "version 4");
  ExpectError(Small().Bytes(0x03000000), Code::kUnsupported, "big-endian");
  const auto missing = GgufFile::Open(folder_.path() + "/absent.gguf");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_EQ(GgufFile::Open(folder_.path()).status().code(), Code::kCorrupt);  // a folder
}

TEST_F(Gguf, RefusesHostileCounts) {
  GgufWriter strings;
  strings.BeginArray("tokens", kGgufString, 1ull << 61);
  ExpectError(strings.Bytes(), Code::kCorrupt, "\"tokens\"");
  GgufWriter doubles;
  doubles.BeginArray("scores", kGgufF64, 1ull << 61);  // times 8 is 2^64
  ExpectError(doubles.Bytes(), Code::kCorrupt, "\"scores\"");
  GgufWriter nested;
  nested.BeginArray("deep", kGgufArray, 1);
  ExpectError(nested.Bytes(), Code::kUnsupported, "array of arrays");
  GgufWriter unknown;
  unknown.Scalar<uint32_t>("odd", 13, 1);
  ExpectError(unknown.Bytes(), Code::kCorrupt, "unknown type 13");
  GgufWriter twice;
  twice.U32("n", 1).U32("n", 2);
  ExpectError(twice.Bytes(), Code::kCorrupt, "occurs twice");
}

TEST_F(Gguf, RefusesImpossibleTensors) {
  const std::string one = Floats({1});
  const auto with = [&](std::vector<uint64_t> shape, uint32_t type) {
    return GgufWriter().Tensor("t.weight", std::move(shape), type, one).Bytes();
  };
  ExpectError(with({1ull << 40, 1ull << 40}, 0), Code::kCorrupt, "\"t.weight\"");
  ExpectError(with({1ull << 63}, 0), Code::kCorrupt, "impossible shape");
  ExpectError(with({1ull << 62}, 0), Code::kCorrupt, "impossible shape");  // bytes overflow
  ExpectError(with({0}, 0), Code::kCorrupt, "impossible shape");
  ExpectError(with({1, 1, 1, 1, 1}, 0), Code::kCorrupt, "5 dimensions");
  ExpectError(with({33}, 8), Code::kCorrupt,
              "impossible shape [33]");  // Q8_0 rows are whole blocks
  ExpectError(with({128}, 12), Code::kCorrupt, "type Q4_K");
  ExpectError(with({2}, 0), Code::kCorrupt, "outside the file");
  ExpectError(GgufWriter().TensorAt("t", {1}, 0, 4).Data(one + one).Bytes(), Code::kCorrupt,
              "not aligned");
  ExpectError(GgufWriter().TensorAt("t", {1}, 0, ~31ull).Data(one).Bytes(), Code::kCorrupt,
              "outside the file");
  ExpectError(GgufWriter().Tensor("t", {1}, 0, one).Tensor("t", {1}, 0, one).Bytes(),
              Code::kCorrupt, "\"t\" occurs twice");
}

TEST_F(Gguf, NamesTheTypeThatItCannotRead) {
  const auto with = [&](uint32_t type) {
    return GgufWriter().Tensor("blk.0.ffn_up.weight", {256}, type, std::string(512, 'x')).Bytes();
  };
  ExpectError(with(20), Code::kUnsupported, "\"blk.0.ffn_up.weight\" has type IQ4_NL");
  ExpectError(with(10), Code::kUnsupported, "Q2_K");
  ExpectError(with(4), Code::kUnsupported, "number 4 (unknown)");  // removed from the format
  ExpectError(with(1000), Code::kUnsupported, "number 1000 (unknown)");
}

TEST(TensorIndex, FindsByNameAndChecksShapes) {
  TensorInfo info;
  info.name = "a.weight";
  info.shape = {2, 3};
  TensorIndex index({info}, {});
  index = TensorIndex(std::move(index));
  ASSERT_NE(index.Find("a.weight"), nullptr);
  EXPECT_EQ(index.Find("b"), nullptr);
  EXPECT_TRUE(index.Get("a.weight", {2, 3}).ok());
  const auto wrong = index.Get("a.weight", {3, 2});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.status().code(), Code::kCorrupt);
  EXPECT_EQ(wrong.status().message(),
            "tensor \"a.weight\" has shape [2, 3], the config asks for [3, 2]");
  EXPECT_EQ(index.Get("b").status().message(), "tensor \"b\" is missing");
}

}  // namespace
}  // namespace sysone
