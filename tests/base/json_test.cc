// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

std::string RoundTrip(std::string_view text) {
  const auto json = Json::Parse(text);
  return json.ok() ? json->Dump() : "error: " + json.status().message();
}

bool Refused(std::string_view text) {
  const auto json = Json::Parse(text);
  return !json.ok() && json.status().code() == Code::kMalformed;
}

TEST(Json, KeepsTheTextOfNumbers) {
  EXPECT_EQ(RoundTrip("[1.0, 1e400, -0, 123456789012345678901234567890, 1E5, 0.10]"),
            "[1.0, 1e400, -0, 123456789012345678901234567890, 1E5, 0.10]");
  for (const char* scalar : {"1.0", "1e400", "-7", "12345678901234567890123"}) EXPECT_EQ(RoundTrip(scalar), scalar);
}

TEST(Json, KeepsTheOrderOfKeysAndWritesPythonSeparators) {
  EXPECT_EQ(RoundTrip(R"({"b":1,"a":{"z":null,"y":[true,false]}})"), R"({"b": 1, "a": {"z": null, "y": [true, false]}})");
}

TEST(Json, LastOfDuplicateKeysWinsAndKeepsTheFirstPlace) {
  EXPECT_EQ(RoundTrip(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(Json, FindsDuplicatesInLargeObjectsToo) {
  std::string text = "{";
  for (int i = 0; i < 100; ++i) text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text += "\"k3\":-3,\"k50\":-50}";
  const auto json = Json::Parse(text);
  ASSERT_TRUE(json.ok());
  ASSERT_EQ(json->members().size(), 100u);
  EXPECT_EQ(json->members()[3].second.number_text(), "-3");
  EXPECT_EQ(json->members()[50].second.number_text(), "-50");
}

TEST(Json, KeepsNonAsciiAndEscapesControls) {
  EXPECT_EQ(RoundTrip("\"\\u00e9\\ud83d\\ude00\\u0001\\n\\/\""), "\"\xc3\xa9\xf0\x9f\x98\x80\\u0001\\n/\"");
}

TEST(Json, RefusesWhatIsNoJson) {
  for (const char* text : {"", " ", "nul", "nulll", "tru", "[1,]", "{\"a\":}", "{\"a\" 1}", "[1 2]", "01", "1.", ".5", "+1", "1e",
                           "NaN", "[NaN]", "[Infinity]", "-", "[-]", "\"a", "[\"\n\"]", "{} {}", "1 2", "[1]]", "{'a':1}", "[0x10]",
                           "[1.2.3]", "nullx", "[truee]", "[nulla]"})
    EXPECT_TRUE(Refused(text)) << text;
}

TEST(Json, RefusesInvalidUtf8AndLoneSurrogates) {
  EXPECT_TRUE(Refused("\"\xff\""));
  EXPECT_TRUE(Refused("\"\xed\xa0\x80\""));
  EXPECT_TRUE(Refused("\"\xc0\xaf\""));
  EXPECT_TRUE(Refused(R"("\ud800")"));
  EXPECT_TRUE(Refused(R"("\udc00")"));
  EXPECT_TRUE(Refused(R"("\ud800\u0041")"));
  EXPECT_TRUE(Refused(R"({"\ud800":1})"));
}

TEST(Json, RefusesNestingBelowTheBoundOnly) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(RoundTrip(nested(128)), nested(128));
  EXPECT_TRUE(Refused(nested(129)));
  EXPECT_TRUE(Refused(nested(5000)));
}

TEST(Json, ReadsNumbersAsValues) {
  EXPECT_EQ(Json::Parse("12")->AsInt64(), 12);
  EXPECT_EQ(Json::Parse("1.5")->AsInt64(), std::nullopt);
  EXPECT_EQ(Json::Parse("9223372036854775808")->AsInt64(), std::nullopt);
  EXPECT_EQ(Json::Parse("1e-6")->AsDouble(), 1e-6);
  EXPECT_EQ(Json::Parse("\"1\"")->AsDouble(), std::nullopt);
}

TEST(Json, WritesTheShortestDoubleThatReadsBack) {
  const auto text = [](double value) {
    std::string out;
    AppendJsonDouble(out, value);
    return out;
  };
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(1), "1.0");
  EXPECT_EQ(text(1e-300), "1e-300");
  EXPECT_EQ(text(1.0 / 3), "0.3333333333333333");
}

}  // namespace
}  // namespace sysone
