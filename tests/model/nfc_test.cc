// SPDX-License-Identifier: Apache-2.0
#include "model/nfc.h"

#include <gtest/gtest.h>

namespace sysone {
namespace {

std::string Nfc(std::string_view text) {
  NfcScratch scratch;
  return std::string(NormalizeNfc(text, scratch));
}

TEST(Nfc, NormalTextComesBackAsItStands) {
  NfcScratch scratch;
  for (const std::string_view text : {"", "plain ASCII, longer than eight bytes",
                                      "d\u00e9j\u00e0 vu \u4e2d\u6587 \U0001F600", "\ud55c\uae00"})
    EXPECT_EQ(NormalizeNfc(text, scratch).data(), text.data()) << text;
}

TEST(Nfc, MarksJoinTheirBase) {
  EXPECT_EQ(Nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(Nfc("long enough ASCII e\u0301 and more of it"),
            "long enough ASCII \u00e9 and more of it");
  EXPECT_EQ(Nfc("a\u0302\u0301"), "\u1ea5");
}

TEST(Nfc, MarksAreSortedByClassBeforeTheyJoin) {
  EXPECT_EQ(Nfc("a\u0301\u0323"),
            "\u1ea1\u0301");  // the dot below (220) comes before the acute (230)
  EXPECT_EQ(Nfc("\u00e9\u0323"), "\u1eb9\u0301");  // also when the acute had joined already
}

TEST(Nfc, AMarkBehindOneOfItsOwnClassDoesNotJoin) {
  EXPECT_EQ(Nfc("a\u0316\u0323"), "a\u0316\u0323");
  EXPECT_EQ(Nfc("a\u0323\u0316"), "\u1ea1\u0316");
}

TEST(Nfc, HangulJamoBecomeSyllables) {
  EXPECT_EQ(Nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\ud558\u11ab"), "\ud55c");
  EXPECT_EQ(Nfc("\u1161\u1112"), "\u1161\u1112");
}

TEST(Nfc, SingletonsAndExclusionsAreReplaced) {
  EXPECT_EQ(Nfc("\u212b\u2126"), "\u00c5\u03a9");
  EXPECT_EQ(Nfc("\u0958"), "\u0915\u093c");
  EXPECT_EQ(Nfc("\uf900"), "\u8c48");
}

TEST(Nfc, MarksWithoutABaseStay) {
  EXPECT_EQ(Nfc("\u0301"), "\u0301");
  EXPECT_EQ(Nfc("\n\u0301\u0301"), "\n\u0301\u0301");
}

TEST(Nfc, NormalisingTwiceChangesNothing) {
  const std::string once = Nfc("\u1e9b\u0323 \u0344 q\u0307\u0323 \u09c7\u09be \u0cc6\u0cc2\u0cd5");
  EXPECT_EQ(Nfc(once), once);
  EXPECT_NE(once, "\u1e9b\u0323 \u0344 q\u0307\u0323 \u09c7\u09be \u0cc6\u0cc2\u0cd5");
}

TEST(Nfc, AVeryLongRunOfMarksIsSorted) {
  std::string text = "a", expected = "\u1ea1";
  for (int i = 0; i < 20000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  for (int i = 1; i < 10000; ++i) expected += "\u0323";
  for (int i = 0; i < 10000; ++i) expected += "\u0301";
  EXPECT_EQ(Nfc(text), expected);
}

}  // namespace
}  // namespace sysone
