// Choices of algorithms as bytes, and which of several timed ones is taken.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul_choices.h"

#include <gtest/gtest.h>

#include <limits>

namespace sysone {
namespace {

constexpr float kNever = std::numeric_limits<float>::infinity();

ProductChoice Choice(int number, bool tuned) {
  ProductChoice choice{{}, tuned};
  choice.algorithm.fill(static_cast<std::byte>(number));
  return choice;
}

MatMulChoices Some() {
  MatMulChoices choices({130100, Encoding::kInt8, false});
  choices.Set({1024, 8, 3072, false}, Choice(1, true));
  choices.Set({1024, 16, 3072, false}, Choice(2, false));
  choices.Set({1024, 16, 3072, true}, Choice(3, true));
  choices.Set({64, kEveryRowCount, 16, false}, Choice(4, false));
  return choices;
}

TEST(MatMulChoices, ComeBackFromTheirBytes) {
  const MatMulChoices choices = Some();
  const auto again = MatMulChoices::Parse(choices.Export());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->origin(), choices.origin());
  EXPECT_EQ(again->all(), choices.all());
  EXPECT_EQ(*again->Find({1024, 16, 3072, true}), Choice(3, true));
  EXPECT_EQ(again->Find({1024, 17, 3072, true}), nullptr);
}

TEST(MatMulChoices, EqualTablesHaveEqualBytesWhateverTheOrder) {
  MatMulChoices other({130100, Encoding::kInt8, false});
  const auto some = Some();
  for (auto entry = some.all().rbegin(); entry != some.all().rend(); ++entry)
    other.Set(entry->first, entry->second);
  EXPECT_EQ(other.Export(), some.Export());
}

TEST(MatMulChoices, NoChoicesAreATable) {
  const auto none = MatMulChoices::Parse(MatMulChoices({1, Encoding::kFp8, true}).Export());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->count(), 0);
  EXPECT_TRUE(none->origin().batch_invariant);
}

TEST(MatMulChoices, EveryCutIsNoticed) {
  const auto bytes = Some().Export();
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_EQ(MatMulChoices::Parse(std::span(bytes).first(length)).status().code(), Code::kCorrupt)
        << length << " of " << bytes.size() << " bytes";
  auto longer = bytes;
  longer.resize(bytes.size() + 96);
  EXPECT_EQ(MatMulChoices::Parse(longer).status().code(), Code::kCorrupt);
}

TEST(MatMulChoices, OtherBytesAreNoTable) {
  auto bytes = Some().Export();
  bytes[0] ^= std::byte{1};
  EXPECT_EQ(MatMulChoices::Parse(bytes).status().code(), Code::kCorrupt);
  const std::vector<std::byte> ones(32 + 96, std::byte{0xFF});
  EXPECT_EQ(MatMulChoices::Parse(ones).status().code(), Code::kCorrupt);
}

TEST(MatMulChoices, AShapeThatIsNoneIsRefused) {
  MatMulChoices choices({1, Encoding::kBfloat16, false});
  choices.Set({0, 8, 16, false}, Choice(1, false));
  EXPECT_EQ(MatMulChoices::Parse(choices.Export()).status().code(), Code::kCorrupt);
}

TEST(FastestCandidate, IsTheFirstThatIsAsFastAsTheFastest) {
  EXPECT_EQ(FastestCandidate(std::vector<float>{3, 2, 1}), 2);
  EXPECT_EQ(FastestCandidate(std::vector<float>{1, 1, 1}), 0);
  EXPECT_EQ(FastestCandidate(std::vector<float>{5, 1.01f, 1}), 1) << "1 % is noise";
  EXPECT_EQ(FastestCandidate(std::vector<float>{5, 1.05f, 1}), 2);
}

TEST(FastestCandidate, LeavesOutWhatCannotBeRun) {
  EXPECT_EQ(FastestCandidate(std::vector<float>{kNever, 7, kNever}), 1);
  EXPECT_EQ(FastestCandidate(std::vector<float>{kNever, kNever}), -1);
  EXPECT_EQ(FastestCandidate({}), -1);
  EXPECT_EQ(FastestCandidate(std::vector<float>{std::numeric_limits<float>::quiet_NaN(), 2}), 1);
}

}  // namespace
}  // namespace sysone
