// What the prefix board says of prompts that begin alike.
// SPDX-License-Identifier: Apache-2.0
#include "shm_arena/prefix_board.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace sysone {
namespace {

constexpr GroupId kOne{1};
constexpr GroupId kTwo{2};

using Tokens = std::vector<int32_t>;

Tokens Range(int32_t begin, int32_t end) {
  Tokens tokens(static_cast<size_t>(end - begin));
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

Tokens operator+(Tokens left, const Tokens& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

JobMarks Job(const Tokens& prefix, std::initializer_list<Tokens> suffixes, uint64_t salt = 0) {
  JobMarks marks(salt, prefix);
  for (const Tokens& suffix : suffixes) marks.Add(suffix);
  return marks;
}

class PrefixBoardTest : public testing::Test {
 protected:
  const std::unique_ptr<PrefixRegion> region_ = std::make_unique<PrefixRegion>();
  PrefixBoard board_{region_.get()};
};

TEST_F(PrefixBoardTest, APromptIsHeldAsAWholeWhereItWasSentAndNowhereElse) {
  for (const int32_t length : {1, 63, 64, 65, 300}) {
    const JobMarks job = Job({}, {Range(1000 * length, 1001 * length)});
    EXPECT_EQ(board_.Held(kOne, job), 0u);
    board_.Sent(kOne, job);
    EXPECT_EQ(board_.Held(kOne, job), static_cast<uint32_t>(length));
    EXPECT_EQ(board_.Held(kTwo, job), 0u);
  }
}

TEST_F(PrefixBoardTest, OfAPromptThatBeginsAlikeTheCommonPartUpToAMarkIsHeld) {
  board_.Sent(kOne, Job({}, {Range(0, 300)}));
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 200) + Range(900, 950)})), 192u);
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 300) + Range(900, 950)})), 300u - 300u % 64u);
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 63) + Range(900, 950)})), 0u);
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(1, 300)})), 0u);
}

TEST_F(PrefixBoardTest, ASharedPrefixIsTheSameHoweverAJobIsCutIntoPrefixAndQuestions) {
  board_.Sent(kOne, Job(Range(0, 100), {Range(500, 520), Range(600, 630)}));
  // The same state, one of the questions and a new one: the new one's tokens are not held.
  EXPECT_EQ(board_.Held(kOne, Job(Range(0, 100), {Range(600, 630), Range(700, 740)})), 130u);
  // One of the questions alone, whose job has no prefix.
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 100) + Range(500, 520)})), 120u);
  // A new question alone: up to a mark of the prefix.
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 100) + Range(700, 740)})), 64u);
  // New questions over the same prefix.
  EXPECT_EQ(board_.Held(kOne, Job(Range(0, 100), {Range(700, 740), Range(800, 810)})), 100u);
}

TEST_F(PrefixBoardTest, SaltsShareNothing) {
  board_.Sent(kOne, Job({}, {Range(0, 300)}, 7));
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 300)}, 7)), 300u);
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 300)}, 8)), 0u);
  EXPECT_EQ(board_.Held(kOne, Job({}, {Range(0, 300)})), 0u);
}

TEST_F(PrefixBoardTest, AGroupThatStartsAnewHoldsNothing) {
  const JobMarks job = Job({}, {Range(0, 300)});
  board_.Sent(kOne, job);
  board_.Sent(kTwo, job);
  board_.Forget(kOne);
  EXPECT_EQ(board_.Held(kOne, job), 0u);
  EXPECT_EQ(board_.Held(kTwo, job), 300u);
}

TEST_F(PrefixBoardTest, AJobWithoutMarksIsHeldByNobody) {
  board_.Sent(kOne, JobMarks());
  EXPECT_EQ(board_.Held(kOne, JobMarks()), 0u);
}

TEST_F(PrefixBoardTest, NewPromptsTakeThePlaceOfOldOnesAndNoMoreIsEverHeldThanThereIs) {
  const JobMarks first = Job({}, {Range(0, 64)});
  board_.Sent(kOne, first);
  for (int32_t n = 1; n <= 20 * static_cast<int32_t>(kPrefixMarks); ++n)
    board_.Sent(kOne, Job({}, {Range(n, n + 64)}));
  // One of 80 thousand marks fell on each place 20 times on average; that none fell on the first's has a chance of e^-20.
  EXPECT_EQ(board_.Held(kOne, first), 0u);
}

}  // namespace
}  // namespace sysone
